#include "reference/latent_attention.h"

#include <cmath>
#include <utility>

#include "oracles/proofs/goldens/groups.h"
#include "reference/backward/latent_attention.h"
#include "reference/error.h"

namespace samestate::latent_attention_golden {
namespace {

constexpr std::pair<LatentForm, std::string_view> kForms[] = {{LatentForm::naive, "naive"},
                                                              {LatentForm::absorbed, "absorbed"},
                                                              {LatentForm::fully_absorbed, "fully absorbed"}};

/// Tokens per call: decode, and a prefill in chunks with a shorter last one.
constexpr std::pair<Index, std::string_view> kSegments[] = {{1, "decode"}, {5, "chunks of 5"}};

/// A width of the layer. Throws Error above a million: products of two must not overflow.
Index width_of(const GoldenSource& s, std::string_view name) {
  const Index width = s.integer(name);
  if (width > 1'000'000) {
    throw Error(s.file_name + ": tensor " + s.path(name) + " holds " + std::to_string(width) +
                "; a width is at most 1000000");
  }
  return width;
}

LatentAttentionWeights<double> weights_of(const GoldenSource& s) {
  const Index n = width_of(s, "qk_nope_head_dim");
  const Index r = width_of(s, "qk_rope_head_dim");
  const Index dv = width_of(s, "v_head_dim");
  const Index c = width_of(s, "kv_lora_rank");
  const Index D = s.tensor("hidden_in").shape.back();
  LatentAttentionWeights<double> w;
  w.heads = width_of(s, "num_heads");
  const bool compressed = s.has("w.q_a_proj.weight");
  const Index q = compressed ? width_of(s, "q_lora_rank") : D;
  if (compressed) {
    s.require_shape("w.q_a_proj.weight", {q, D});
    s.require_shape("w.q_a_layernorm.weight", {q});
    w.q_down = s.matrix("w.q_a_proj.weight");
    w.q_norm = s.vector("w.q_a_layernorm.weight");
  }
  const std::string_view q_up = compressed ? "w.q_b_proj.weight" : "w.q_proj.weight";
  s.require_shape(q_up, {w.heads * (n + r), q});
  s.require_shape("w.kv_a_proj_with_mqa.weight", {c + r, D});
  s.require_shape("w.kv_a_layernorm.weight", {c});
  s.require_shape("w.kv_b_proj.weight", {w.heads * (n + dv), c});
  s.require_shape("w.o_proj.weight", {D, w.heads * dv});
  w.q_up = s.matrix(q_up);
  w.kv_down = s.matrix("w.kv_a_proj_with_mqa.weight");
  w.kv_norm = s.vector("w.kv_a_layernorm.weight");
  w.kv_up = s.matrix("w.kv_b_proj.weight");
  w.output = s.matrix("w.o_proj.weight");
  w.pairs = s.number("rope_interleave") != 0.0 ? RotaryPairs::interleaved : RotaryPairs::halves;
  w.score_factor = s.number("softmax_scale") * std::sqrt(static_cast<double>(n + r));
  return w;
}

/// The public tables hold every cosine twice, [T, r].
RotaryTables<double> tables_of(const GoldenSource& s, Index b, Index r) {
  return {s.matrix("cos", b).leftCols(r / 2), s.matrix("sin", b).leftCols(r / 2)};
}

}  // namespace

void check(const GoldenSource& s) {
  s.require_shape("hidden_in", {-1, -1, -1});
  const LatentAttentionWeights<double> weights = weights_of(s);
  const Index B = s.tensor("hidden_in").shape[0];
  const Index T = s.tensor("hidden_in").shape[1];
  const Index D = s.tensor("hidden_in").shape[2];
  const Index r = width_of(s, "qk_rope_head_dim");
  s.require_shape("hidden_out", {B, T, D});
  s.require_shape("cos", {B, T, r});
  s.require_shape("sin", {B, T, r});

  const auto check = [&](const std::string& form_name, LatentForm form, Index segment, bool own_tables) {
    Matrix<double> y(B * T, D);
    for (Index b = 0; b < B; ++b) {
      const Matrix<double> x = s.matrix("hidden_in", b);
      const RotaryTables<double> tables =
          own_tables ? rotary_tables(0, T, r, s.number("rope_theta")) : tables_of(s, b, r);
      LatentCache<double> cache;
      for (Index begin = 0; begin < T; begin += segment) {
        const Index n = segment < T - begin ? segment : T - begin;
        const Matrix<double> part = x.middleRows(begin, n);
        const LatentAttention<double> out = latent_attention<double>(
            part, weights, {tables.cos.middleRows(begin, n), tables.sin.middleRows(begin, n)}, form, cache);
        y.middleRows(b * T + begin, n) = out.y;
        cache = out.cache;
      }
    }
    s.check("hidden_out", form_name, y);
  };
  for (const auto& [form, name] : kForms) {
    check(std::string(name), form, T < 1 ? 1 : T, false);
    for (const auto& [segment, how] : kSegments) {
      check(std::string(name) + ", " + std::string(how), form, segment, false);
    }
  }
  check("naive, own rotary tables", LatentForm::naive, T < 1 ? 1 : T, true);
}

void check_backward(const GoldenSource& s) {
  s.require_shape("hidden_in", {-1, -1, -1});
  const LatentAttentionWeights<double> weights = weights_of(s);
  const Index B = s.tensor("hidden_in").shape[0], T = s.tensor("hidden_in").shape[1];
  const Index D = s.tensor("hidden_in").shape[2];
  s.require_shape("d.hidden_out", {B, T, D});
  Matrix<double> hidden(B * T, D);
  LatentAttentionWeights<double> sum;
  for (Index b = 0; b < B; ++b) {
    const LatentAttentionGradients<double> one = latent_attention_backward(
        s.matrix("hidden_in", b), weights, tables_of(s, b, width_of(s, "qk_rope_head_dim")),
        s.matrix("d.hidden_out", b));
    hidden.middleRows(b * T, T) = one.x;
    const LatentAttentionWeights<double>& d = one.weights;
    if (b == 0) {
      sum = d;
      continue;
    }
    sum.q_down += d.q_down, sum.q_norm += d.q_norm, sum.q_up += d.q_up, sum.kv_down += d.kv_down;
    sum.kv_norm += d.kv_norm, sum.kv_up += d.kv_up, sum.output += d.output;
  }
  s.check("d.hidden_in", "reverse", hidden);
  if (s.has("w.q_a_proj.weight")) {
    s.check("d.w.q_a_proj.weight", "reverse", sum.q_down);
    s.check("d.w.q_a_layernorm.weight", "reverse", Matrix<double>(sum.q_norm));
    s.check("d.w.q_b_proj.weight", "reverse", sum.q_up);
  } else {
    s.check("d.w.q_proj.weight", "reverse", sum.q_up);
  }
  s.check("d.w.kv_a_proj_with_mqa.weight", "reverse", sum.kv_down);
  s.check("d.w.kv_a_layernorm.weight", "reverse", Matrix<double>(sum.kv_norm));
  s.check("d.w.kv_b_proj.weight", "reverse", sum.kv_up);
  s.check("d.w.o_proj.weight", "reverse", sum.output);
}

}  // namespace samestate::latent_attention_golden
