#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "fuzz/mutants/operators/changed_call.h"

/// Attention and the gated attention layer: M31, M46, M47, M52, M85, M90, and caches, heads, gates, tables.
namespace samestate::mutants {
namespace {

using Call = ChangedCall;

constexpr float kLargest = std::numeric_limits<float>::max();

// Query heads are moved to where the right map gives them the key head of the wrong one, and their outputs
// are moved back.
void heads_tiled(Call& c) {
  const std::int64_t groups = c.at("Hkv"), size = c.at("H") / groups;
  permute(c.input("q"), c.at("H"), c.at("d"), [&](std::int64_t h) { return h % size * groups + h / size; });
}
void tiles_back(Call& c) {
  const std::int64_t groups = c.at("Hkv"), size = c.at("H") / groups;
  permute(c.output("o"), c.at("H"), c.at("dv"),
          [&](std::int64_t h) { return h % groups * size + h / groups; });
}
void no_scale(Call& c) {
  c.each("q", [s = root_of(c.at("d"))](float x) { return x * s; });
}
void scale_of_value_width(Call& c) {
  const float s = std::sqrt(static_cast<float>(c.at("d")) / static_cast<float>(c.at("dv")));
  c.each("q", [s](float x) { return x * s; });
}
/// Query t sees the keys 1 .. t + 1 instead of 0 .. t.
void mask_off_by_one(Call& c) {
  next_token("k")(c);
  next_token("v")(c);
}
/// Only the keys of this call are used.
void cache_forgotten(Call& c) {
  for (NamedTensor<const float>& tensor : c.call.inputs) {
    if (tensor.name == "q" || tensor.shape[1] == c.call.tokens) continue;
    last_tokens(c, tensor);
  }
}
void values_of_the_first_key_head(Call& c) {
  permute(c.input("v"), c.at("Hkv"), c.at("dv"), [](std::int64_t) { return 0; });
}
void sums_not_divided_out(Call& c) {
  const std::int64_t width = c.at("H") * c.at("dv");
  std::int64_t t = 0;
  each_row(c.output("o"), width, [&](std::span<float> row) {
    for (float& x : row) x *= static_cast<float>(1 + t % c.call.tokens);
    ++t;
  });
}

/// 2^(c s - fl(c m)) by one multiply-add: the rounding of c m remains in the exponent, beyond fp32 if m is
/// large.
void scaled_maximum_rounded(Call& c) {
  const std::int64_t H = c.at("H"), Hkv = c.at("Hkv"), d = c.at("d"), dv = c.at("dv"), T = c.call.tokens;
  const std::span<const float> q = c.input("q"), k = c.input("k");
  const std::span<float> o = c.output("o");
  const std::int64_t rows = H * d > 0 ? std::ssize(q) / (H * d) : 0;
  const std::int64_t keys = rows > 0 ? std::ssize(k) / (Hkv * d) / (rows / T) : 0;
  const float factor = 1.4426950408889634F / std::sqrt(static_cast<float>(d));
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t h = 0; h < H; ++h) {
      float most = -kLargest;
      for (std::int64_t j = 0; j <= keys - T + row % T; ++j) {
        const auto from = static_cast<std::size_t>((row * H + h) * d);
        const auto to = static_cast<std::size_t>(((row / T * keys + j) * Hkv + h / (H / Hkv)) * d);
        most = std::max(most, std::inner_product(&q[from], &q[from] + d, &k[to], 0.0F));
      }
      const float left = std::exp2(std::fma(most, factor, -(most * factor)));
      for (std::int64_t i = 0; i < dv; ++i) {
        float& x = o[static_cast<std::size_t>((row * H + h) * dv + i)];
        x = x * left / left;
      }
    }
  }
}

/// Query head h of a token as the layer computes it: projected, normalised and rotated.
std::vector<float> query_of(Call& c, std::int64_t row, std::int64_t h) {
  const std::int64_t d = c.at("d"), D = c.at("D"), pairs = c.at("pairs");
  const float* hidden = c.input("hidden").data() + row * D;
  std::vector<float> q(static_cast<std::size_t>(d));
  float squares = 0.0F;
  for (std::int64_t i = 0; i < d; ++i) {
    const float* weights = c.input("q_proj").data() + (h * 2 * d + i) * D;
    const float x = std::inner_product(weights, weights + D, hidden, 0.0F);
    squares += x * x;
    q[static_cast<std::size_t>(i)] = x;
  }
  const float root = std::sqrt(squares / static_cast<float>(d) + 1e-6F);
  for (std::size_t i = 0; i < q.size(); ++i) q[i] *= (1.0F + c.input("q_norm")[i]) / root;
  for (std::int64_t i = 0; i < pairs; ++i) {
    const auto at = static_cast<std::size_t>(row * pairs + i);
    const float cosine = c.input("cosine")[at], sine = c.input("sine")[at];
    const float x = q[static_cast<std::size_t>(i)], y = q[static_cast<std::size_t>(i + pairs)];
    q[static_cast<std::size_t>(i)] = x * cosine - y * sine;
    q[static_cast<std::size_t>(i + pairs)] = y * cosine + x * sine;
  }
  return q;
}

/// e^s without subtracting the maximum: it overflows fp32 from 88.73 on, and the weights are infinity over
/// infinity.
void scores_not_shifted(Call& c) {
  const std::int64_t H = c.at("H"), Hkv = c.at("Hkv"), d = c.at("d"), D = c.at("D"), T = c.call.tokens;
  const std::span<float> k = c.output("k"), out = c.output("out");
  for (std::int64_t row = 0; row < c.call.batch * T; ++row) {
    float most = 0.0F;
    for (std::int64_t h = 0; h < H; ++h) {
      const std::vector<float> q = query_of(c, row, h);
      for (std::int64_t j = row / T * T; j <= row; ++j) {
        const float* key = k.data() + (j * Hkv + h / (H / Hkv)) * d;
        most = std::max(most, std::inner_product(q.begin(), q.end(), key, 0.0F));
      }
    }
    if (most / root_of(d) < 88.73F) continue;
    std::fill_n(out.begin() + row * D, D, std::numeric_limits<float>::quiet_NaN());
  }
}

void add_attention(std::vector<Mutant>& out, std::string_view kernel) {
  add_faults(
      out, kernel,
      {{"M31", "other_head_map", "key head of h as h mod Hkv", changed(heads_tiled, tiles_back)},
       {"M47", "no_scale", "the scale is ignored", misread(no_scale)},
       {"M90", "mask_off_by_one", "a query sees the next key and not the first", misread(mask_off_by_one)},
       {"F", "cache_forgotten", "only the keys of the call are seen", misread(cache_forgotten)},
       {"F", "values_of_the_first_key_head", "every key head has the values of the first",
        misread(values_of_the_first_key_head)},
       {"F", "sums_not_divided_out", "row t is t + 1 times too large", miswritten(sums_not_divided_out)},
       {"F", "scaled_maximum_rounded", "the rounding of the scaled maximum is left in the exponent",
        miswritten(scaled_maximum_rounded)}});
}

/// The rows of q_proj of every head hold the gate first and the query second.
void gate_before_query(Call& c) {
  const std::int64_t rows = c.at("d") * c.at("D");
  each_row(c.input("q_proj"), 2 * rows, [rows](std::span<float> w) { rotate(w, rows); });
}
/// q_proj holds all queries first and all gates second.
void flat_projection(Call& c) {
  const std::int64_t H = c.at("H");
  permute(c.input("q_proj"), 2 * H, c.at("d") * c.at("D"), [H](std::int64_t i) { return i % 2 * H + i / 2; });
}
/// The rotated columns of a head are ordered 0 2 4 .. 1 3 5 ..: halves then hold what interleaved pairs
/// would.
void keys_interleaved(Call& c) {
  const std::int64_t pairs = c.at("pairs");
  const auto from = [&](std::int64_t i) {
    return i >= 2 * pairs ? i : i < pairs ? 2 * i : 2 * (i - pairs) + 1;
  };
  permute(c.input("k_proj"), c.at("d"), c.at("D"), from);
  permute(c.input("k_norm"), c.at("d"), 1, from);
}
void key_heads_exchanged(Call& c) {
  const std::int64_t Hkv = c.at("Hkv");
  permute(c.input("v_proj"), Hkv, c.at("d") * c.at("D"), [Hkv](std::int64_t h) { return (h + 1) % Hkv; });
}
void output_not_projected(Call& c) {
  const std::span<float> out = c.output("out");
  const std::span<float> gated = c.output("gated");
  std::copy_n(gated.begin(), std::min(out.size(), gated.size()), out.begin());
}

}  // namespace

std::vector<Mutant> softmax_attention_mutants() {
  std::vector<Mutant> out;
  for (const char* kernel :
       {"cpu.softmax_attention.online", "cpu.softmax_attention.merged", "cpu.softmax_attention.grouped"}) {
    add_attention(out, kernel);
  }
  add_faults(out, "cpu.softmax_attention.online",
             {{"M47", "scale_of_value_width", "dv^-1/2 for d^-1/2", misread(scale_of_value_width)}});
  add_faults(
      out, "cpu.gated_attention.online",
      {{"M46", "flat_projection", "queries and gates read as two blocks where rows are grouped by head",
        misread(flat_projection)},
       {"M52", "weight_without_one", "w where 1 + w is meant, of the query norm",
        misread(mapped("q_norm", [](float w) { return w - 1.0F; }))},
       {"M85", "keys_interleaved", "keys turn in pairs (2 i, 2 i + 1), queries in halves",
        misread(keys_interleaved)},
       {"F", "gate_before_query", "of a head's rows the gate's come first", misread(gate_before_query)},
       {"F", "key_norm_of_queries", "the key norm has the weight of the query norm",
        misread([](Call& c) { std::ranges::copy(c.input("q_norm"), c.input("k_norm").begin()); })},
       {"F", "position_off_by_one", "tables of the token before", misread(token_before({"cosine", "sine"}))},
       {"F", "turned_the_other_way", "the angle has the other sign",
        misread(mapped("sine", [](float x) { return -x; }))},
       {"F", "key_heads_exchanged", "a key head has the values of the next", misread(key_heads_exchanged)},
       {"F", "values_doubled_in_the_cache", "values are scaled on their way into the cache",
        miswritten(scaled("v", [](const Call&) { return 2.0F; }))},
       {"F", "scores_not_shifted", "the largest score is not taken off before the exponential",
        miswritten(scores_not_shifted)},
       {"F", "output_not_projected", "the output projection is left out", miswritten(output_not_projected)}});
  return out;
}

}  // namespace samestate::mutants
