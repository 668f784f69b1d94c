#include "reference/layers/gated_attention.h"

#include <functional>

#include "oracles/proofs/goldens/groups.h"
#include "reference/backward/layers/gated_attention.h"
#include "reference/online_softmax.h"

namespace samestate::gated_attention_golden {
namespace {

using Attend = std::function<Matrix<double>(const AttentionInputs<double>&)>;

/// Sizes and weights; sizes that the group does not have follow from its shapes.
GatedAttentionParameters<double> parameters_of(const GoldenSource& s) {
  GatedAttentionParameters<double> p;
  s.require_shape("hidden_in", {-1, -1, -1});
  const Index D = s.tensor("hidden_in").shape[2];
  s.require_shape("w.q_norm.weight", {-1});
  const Index d = s.tensor("w.q_norm.weight").shape[0];
  s.require_shape("w.k_norm.weight", {d});
  for (const char* name : {"w.q_proj.weight", "w.k_proj.weight"}) s.require_shape(name, {-1, D});
  const Index q_rows = s.tensor("w.q_proj.weight").shape[0];
  const Index k_rows = s.tensor("w.k_proj.weight").shape[0];
  s.require_shape("w.v_proj.weight", {k_rows, D});
  if (D < 1 || d < 1 || q_rows < 1 || k_rows < 1 || q_rows % (2 * d) != 0 || k_rows % d != 0) {
    throw Error(s.file_name + ": group " + s.group + ": " + std::to_string(q_rows) + " rows of q_proj and " +
                std::to_string(k_rows) + " of k_proj are no whole heads of width " + std::to_string(d));
  }
  p.heads = q_rows / (2 * d);
  p.key_heads = k_rows / d;
  p.head_width = d;
  s.require_shape("w.o_proj.weight", {D, p.heads * d});

  const double factor = s.number("partial_rotary_factor");
  if (!(factor >= 0.0 && factor <= 1.0)) {
    throw Error(s.file_name + ": " + s.path("partial_rotary_factor") + " must lie in 0..1");
  }
  p.rotary_width = static_cast<Index>(factor * static_cast<double>(d));
  p.theta = s.number("rope_theta");
  p.epsilon = s.number("eps");
  p.q_proj = s.matrix("w.q_proj.weight");
  p.k_proj = s.matrix("w.k_proj.weight");
  p.v_proj = s.matrix("w.v_proj.weight");
  p.o_proj = s.matrix("w.o_proj.weight");
  p.q_norm = s.vector("w.q_norm.weight");
  p.k_norm = s.vector("w.k_norm.weight");
  return p;
}

/// The tables of every batch row as public code stores them: each angle twice, [c, c], [B T, width].
Matrix<double> doubled(const Matrix<double>& table, Index batch) {
  const Matrix<double> both = table.replicate(1, 2);
  return both.replicate(batch, 1);
}

}  // namespace

void check(const GoldenSource& source) {
  const GatedAttentionParameters<double> p = parameters_of(source);
  const Index B = source.tensor("hidden_in").shape[0];
  const Index T = source.tensor("hidden_in").shape[1];
  source.require_shape("hidden_out", {B, T, p.q_proj.cols()});
  for (const char* name : {"cos", "sin"}) source.require_shape(name, {B, T, p.rotary_width});

  const RotaryTables<double> tables = rotary_tables(Index{0}, T, p.rotary_width, p.theta);
  source.check("cos", "positions from 0", doubled(tables.cos, B));
  source.check("sin", "positions from 0", doubled(tables.sin, B));

  const auto check = [&](const std::string& form, const std::vector<Index>& cuts, const Attend& attend) {
    Matrix<double> out(B * T, p.q_proj.cols());
    for (Index b = 0; b < B; ++b) {
      const Matrix<double> hidden = source.matrix("hidden_in", b);
      out.middleRows(b * T, T) = gated_attention_resumed(hidden, p, cuts, attend).out;
    }
    source.check("hidden_out", form, out);
  };
  const Attend plain = [](const AttentionInputs<double>& x) { return softmax_attention(x); };
  std::vector<Index> every_token;
  for (Index t = 1; t < T; ++t) every_token.push_back(t);
  check("prefill", {}, plain);
  check("decode", every_token, plain);
  check("split in the middle", {T / 2}, plain);
  check("grouped", {}, [](const AttentionInputs<double>& x) { return softmax_attention_grouped(x); });
  check("repeated heads", {},
        [](const AttentionInputs<double>& x) { return softmax_attention(with_repeated_heads(x)); });
  for (const Index tile : {Index{1}, Index{4}, Index{64}}) {
    const Attend online = [tile](const AttentionInputs<double>& x) {
      return softmax_attention_online(x, tile);
    };
    const Attend merged = [tile](const AttentionInputs<double>& x) {
      return softmax_attention_merged(x, tile);
    };
    check("online " + std::to_string(tile), {}, online);
    check("merged " + std::to_string(tile), {}, merged);
    check("decode, online " + std::to_string(tile), every_token, online);
  }
}

void check_backward(const GoldenSource& s) {
  const GatedAttentionParameters<double> p = parameters_of(s);
  const Index B = s.tensor("hidden_in").shape[0], T = s.tensor("hidden_in").shape[1];
  s.require_shape("d.hidden_out", {B, T, p.q_proj.cols()});
  const RotaryTables<double> tables = rotary_tables(Index{0}, T, p.rotary_width, p.theta);
  Matrix<double> hidden(B * T, p.q_proj.cols());
  GatedAttentionParameters<double> sum;
  for (Index b = 0; b < B; ++b) {
    const GatedAttentionGradients<double> one =
        gated_attention_backward(s.matrix("hidden_in", b), p, tables, {}, s.matrix("d.hidden_out", b));
    hidden.middleRows(b * T, T) = one.hidden;
    const GatedAttentionParameters<double>& d = one.parameters;
    if (b == 0) {
      sum = d;
      continue;
    }
    sum.q_proj += d.q_proj, sum.k_proj += d.k_proj, sum.v_proj += d.v_proj, sum.o_proj += d.o_proj;
    sum.q_norm += d.q_norm, sum.k_norm += d.k_norm;
  }
  s.check("d.hidden_in", "reverse", hidden);
  s.check("d.w.q_proj.weight", "reverse", sum.q_proj);
  s.check("d.w.k_proj.weight", "reverse", sum.k_proj);
  s.check("d.w.v_proj.weight", "reverse", sum.v_proj);
  s.check("d.w.o_proj.weight", "reverse", sum.o_proj);
  s.check("d.w.q_norm.weight", "reverse", Matrix<double>(sum.q_norm));
  s.check("d.w.k_norm.weight", "reverse", Matrix<double>(sum.k_norm));
}

}  // namespace samestate::gated_attention_golden
