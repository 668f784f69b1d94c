#include "reference/softmax_attention.h"

#include <algorithm>

#include "oracles/proofs/identities/draw.h"
#include "oracles/proofs/identities/groups.h"
#include "reference/layers/gated_attention.h"
#include "reference/online_softmax.h"
#include "reference/scalars.h"

namespace samestate {
namespace {

constexpr Index kTokens = 9;
constexpr Index kHeads = 4;
constexpr Index kKeyHeads = 2;
constexpr Index kWidth = 6;
constexpr Index kValueWidth = 5;
constexpr Index kModel = 7;

template <class Scalar>
AttentionInputs<Scalar> inputs(std::uint64_t seed) {
  IdentityDraw<Scalar> draw(seed);
  AttentionInputs<Scalar> x;
  x.q = draw.normal(kTokens, kHeads * kWidth);
  x.k = draw.normal(kTokens, kKeyHeads * kWidth);
  x.v = draw.normal(kTokens, kKeyHeads * kValueWidth);
  x.heads = kHeads;
  x.key_heads = kKeyHeads;
  x.scale = Scalar(0.5);
  return x;
}

template <class Scalar>
double online(std::uint64_t seed) {
  AttentionInputs<Scalar> x = inputs<Scalar>(seed);
  double worst = 0.0;
  for (const bool causal : {true, false}) {
    x.causal = causal;
    const Matrix<Scalar> o = softmax_attention(x);
    for (Index tile : {Index{1}, Index{2}, Index{4}, kTokens, kTokens + 1}) {
      worst = std::max(worst, relative_difference(softmax_attention_online(x, tile), o));
      worst = std::max(worst, relative_difference(softmax_attention_merged(x, tile), o));
    }
  }
  return worst;
}

/// A mask that empties a whole first tile: nothing seen yet, no maximum to rescale by (8.3).
template <class Scalar>
double online_empty_tile(std::uint64_t seed) {
  AttentionInputs<Scalar> x = inputs<Scalar>(seed);
  x.causal = false;
  x.key_mask = {false, false, false, true, true, false, true, true, false};
  AttentionInputs<Scalar> seen = x;
  seen.key_mask.clear();
  seen.k.resize(4, x.k.cols());
  seen.v.resize(4, x.v.cols());
  Index row = 0;
  for (Index s = 0; s < kTokens; ++s) {
    if (!x.key_mask[static_cast<std::size_t>(s)]) continue;
    seen.k.row(row) = x.k.row(s);
    seen.v.row(row++) = x.v.row(s);
  }
  const Matrix<Scalar> o = softmax_attention(seen);
  return std::max({relative_difference(softmax_attention(x), o),
                   relative_difference(softmax_attention_online(x, 3), o),
                   relative_difference(softmax_attention_merged(x, 3), o)});
}

template <class Scalar>
double decode(std::uint64_t seed) {
  const AttentionInputs<Scalar> x = inputs<Scalar>(seed);
  return relative_difference(softmax_attention_decode(x), softmax_attention(x));
}

template <class Scalar>
double chunked_prefill(std::uint64_t seed) {
  const AttentionInputs<Scalar> x = inputs<Scalar>(seed);
  const Matrix<Scalar> o = softmax_attention(x);
  double worst = 0.0;
  for (Index cut = 0; cut <= kTokens; ++cut) {
    const auto tiles = [](const AttentionInputs<Scalar>& part) { return softmax_attention_online(part, 2); };
    worst = std::max(worst, relative_difference(softmax_attention_resumed(x, {cut, kTokens}, tiles), o));
  }
  return worst;
}

/// A vector added to every key adds q . u to every score of a row, and the maximum takes it away again.
template <class Scalar>
double shift_of_scores(std::uint64_t seed) {
  AttentionInputs<Scalar> x = inputs<Scalar>(seed);
  const Matrix<Scalar> o = softmax_attention(x);
  const Vector<Scalar> u = IdentityDraw<Scalar>(seed + 1).normal_vector(x.k.cols());
  x.k.rowwise() += u.transpose();
  return relative_difference(softmax_attention(x), o);
}

/// By how much an output leaves the range of its value column: probabilities are a convex combination.
template <class Scalar>
double convex(std::uint64_t seed) {
  AttentionInputs<Scalar> x = inputs<Scalar>(seed);
  const Matrix<Scalar> o = softmax_attention(with_repeated_heads(x));
  const Matrix<Scalar> v = with_repeated_heads(x).v;
  double worst = 0.0;
  for (Index c = 0; c < o.cols(); ++c) {
    for (Index t = 0; t < kTokens; ++t) {
      const Scalar high = v.col(c).head(t + 1).maxCoeff();
      const Scalar low = v.col(c).head(t + 1).minCoeff();
      worst = std::max(
          {worst, static_cast<double>(Scalar(o(t, c) - high)), static_cast<double>(Scalar(low - o(t, c)))});
    }
  }
  return worst;
}

template <class Scalar>
double shared_by_index(std::uint64_t seed) {
  const AttentionInputs<Scalar> x = inputs<Scalar>(seed);
  return relative_difference(softmax_attention(x), softmax_attention(with_repeated_heads(x)));
}

template <class Scalar>
double grouped(std::uint64_t seed) {
  const AttentionInputs<Scalar> x = inputs<Scalar>(seed);
  return relative_difference(softmax_attention_grouped(x), softmax_attention(with_repeated_heads(x)));
}

/// Query head h reads key head h mod Hk: `tile` where `repeat_interleave` belongs.
template <class Scalar>
double tiled_heads(std::uint64_t seed) {
  const AttentionInputs<Scalar> x = inputs<Scalar>(seed);
  AttentionInputs<Scalar> tiled = x;
  tiled.key_heads = kHeads;
  tiled.k = x.k.replicate(1, kHeads / kKeyHeads);
  tiled.v = x.v.replicate(1, kHeads / kKeyHeads);
  return relative_difference(softmax_attention(tiled), softmax_attention(x));
}

/// The causal mask one token off: a token sees the next one.
template <class Scalar>
double mask_off_by_one(std::uint64_t seed) {
  const AttentionInputs<Scalar> x = inputs<Scalar>(seed);
  AttentionInputs<Scalar> ahead = x;
  ahead.q = x.q.topRows(kTokens - 1);
  const Matrix<Scalar> expected = softmax_attention(x).topRows(kTokens - 1);
  return relative_difference(softmax_attention(ahead), expected);
}

template <class Scalar>
double not_causal(std::uint64_t seed) {
  AttentionInputs<Scalar> x = inputs<Scalar>(seed);
  const Matrix<Scalar> o = softmax_attention(x);
  x.causal = false;
  return relative_difference(softmax_attention(x), o);
}

/// Tiles averaged by their own sums, without the rescaling to a common maximum.
template <class Scalar>
double tiles_without_rescaling(std::uint64_t seed) {
  AttentionInputs<Scalar> x = inputs<Scalar>(seed);
  x.causal = false;
  AttentionInputs<Scalar> part = x;
  Matrix<Scalar> mean = Matrix<Scalar>::Zero(kTokens, kHeads * kValueWidth);
  for (Index begin = 0; begin < kTokens; begin += 3) {
    part.k = x.k.middleRows(begin, 3);
    part.v = x.v.middleRows(begin, 3);
    mean += softmax_attention(part) / Scalar(3);
  }
  return relative_difference(mean, softmax_attention(x));
}

/// q and k of one head turned by the tables of these positions.
template <class Scalar>
Matrix<Scalar> turned_scores(const Matrix<Scalar>& q, const Matrix<Scalar>& k, Index first, Index width,
                             RotaryPairs pairs) {
  const RotaryTables<Scalar> tables = rotary_tables(first, q.rows(), width, Scalar(100));
  return rotate(q, tables, pairs) * rotate(k, tables, pairs).transpose();
}

template <class Scalar>
double relative_position(std::uint64_t seed) {
  IdentityDraw<Scalar> draw(seed);
  const Matrix<Scalar> q = draw.normal(kTokens, kWidth);
  const Matrix<Scalar> k = draw.normal(kTokens, kWidth);
  double worst = 0.0;
  for (const RotaryPairs pairs : {RotaryPairs::halves, RotaryPairs::interleaved}) {
    const Matrix<Scalar> here = turned_scores(q, k, 0, 4, pairs);
    worst = std::max(worst, relative_difference(turned_scores(q, k, 3, 4, pairs), here));
  }
  return worst;
}

/// Columns (0 2 4 | 1 3 5) of x.
template <class Scalar>
Matrix<Scalar> evens_then_odds(const Matrix<Scalar>& x) {
  Matrix<Scalar> y(x.rows(), x.cols());
  for (Index i = 0; i < x.cols() / 2; ++i) {
    y.col(i) = x.col(2 * i);
    y.col(x.cols() / 2 + i) = x.col(2 * i + 1);
  }
  return y;
}

template <class Scalar>
double interleaved_is_permuted(std::uint64_t seed) {
  const Matrix<Scalar> x = IdentityDraw<Scalar>(seed).normal(kTokens, kWidth);
  const RotaryTables<Scalar> tables = rotary_tables(Index{0}, kTokens, kWidth, Scalar(100));
  return relative_difference(evens_then_odds(rotate(x, tables, RotaryPairs::interleaved)),
                             rotate(evens_then_odds(x), tables, RotaryPairs::halves));
}

template <class Scalar>
double length_kept(std::uint64_t seed) {
  const Matrix<Scalar> x = IdentityDraw<Scalar>(seed).normal(kTokens, kWidth);
  const RotaryTables<Scalar> tables = rotary_tables(Index{0}, kTokens, Index{4}, Scalar(100));
  const Vector<Scalar> before = x.rowwise().squaredNorm();
  const Vector<Scalar> after = rotate(x, tables).rowwise().squaredNorm();
  return relative_difference(after, before);
}

template <class Scalar>
double other_pairs(std::uint64_t seed) {
  IdentityDraw<Scalar> draw(seed);
  const Matrix<Scalar> q = draw.normal(kTokens, kWidth);
  const Matrix<Scalar> k = draw.normal(kTokens, kWidth);
  return relative_difference(turned_scores(q, k, 0, kWidth, RotaryPairs::interleaved),
                             turned_scores(q, k, 0, kWidth, RotaryPairs::halves));
}

/// A small layer and its input; the input's first column is 1, so that a weight there is a bias.
template <class Scalar>
struct Layer {
  GatedAttentionParameters<Scalar> p;
  Matrix<Scalar> hidden;
  explicit Layer(std::uint64_t seed) {
    IdentityDraw<Scalar> draw(seed);
    p.heads = kHeads;
    p.key_heads = kKeyHeads;
    p.head_width = kWidth;
    p.rotary_width = 4;
    p.theta = Scalar(100);
    p.q_proj = draw.normal(kHeads * 2 * kWidth, kModel, 0.5);
    p.k_proj = draw.normal(kKeyHeads * kWidth, kModel, 0.5);
    p.v_proj = draw.normal(kKeyHeads * kWidth, kModel, 0.5);
    p.o_proj = draw.normal(kModel, kHeads * kWidth, 0.5);
    p.q_norm = draw.normal_vector(kWidth, 0.5);
    p.k_norm = draw.normal_vector(kWidth, 0.5);
    hidden = draw.normal(kTokens, kModel);
    hidden.col(0).setOnes();
  }
  /// Every gate, before the logistic function, set to this value.
  void set_gates(const Scalar& value) {
    for (Index h = 0; h < kHeads; ++h) {
      p.q_proj.middleRows((2 * h + 1) * kWidth, kWidth).setZero();
      p.q_proj.col(0).segment((2 * h + 1) * kWidth, kWidth).setConstant(value);
    }
  }
  [[nodiscard]] Matrix<Scalar> without_gate() const {
    return linear(gated_attention(hidden, p).attended, p.o_proj);
  }
};

template <class Scalar>
double layer_any_split(std::uint64_t seed) {
  const Layer<Scalar> layer(seed);
  const GatedAttentionOutput<Scalar> whole = gated_attention(layer.hidden, layer.p);
  const auto tiles = [](const AttentionInputs<Scalar>& x) { return softmax_attention_online(x, 2); };
  double worst = 0.0;
  for (const std::vector<Index>& cuts :
       {std::vector<Index>{1, 2, 3, 4, 5, 6, 7, 8}, std::vector<Index>{4}, std::vector<Index>{0, 7, 7}}) {
    const GatedAttentionOutput<Scalar> parts = gated_attention_resumed(layer.hidden, layer.p, cuts, tiles);
    worst = std::max({worst, relative_difference(parts.out, whole.out),
                      relative_difference(parts.attended, whole.attended),
                      relative_difference(parts.cache.k, whole.cache.k),
                      relative_difference(parts.cache.v, whole.cache.v)});
  }
  return worst;
}

/// e^-5000 is 0 beside 1 in every precision here.
template <class Scalar>
double open_gate(std::uint64_t seed) {
  Layer<Scalar> layer(seed);
  layer.set_gates(Scalar(5000));
  return relative_difference(gated_attention(layer.hidden, layer.p).out, layer.without_gate());
}

template <class Scalar>
double zero_gate(std::uint64_t seed) {
  Layer<Scalar> layer(seed);
  layer.set_gates(Scalar(0));
  const Matrix<Scalar> half = layer.without_gate() / Scalar(2);
  return relative_difference(gated_attention(layer.hidden, layer.p).out, half);
}

template <class Scalar>
double closed_gate(std::uint64_t seed) {
  Layer<Scalar> layer(seed);
  layer.set_gates(Scalar(-5000));
  const Matrix<Scalar> out = gated_attention(layer.hidden, layer.p).out;
  return relative_difference(out, Matrix<Scalar>(Matrix<Scalar>::Zero(out.rows(), out.cols())));
}

template <class Scalar>
double gate_missing(std::uint64_t seed) {
  const Layer<Scalar> layer(seed);
  return relative_difference(layer.without_gate(), gated_attention(layer.hidden, layer.p).out);
}

/// silu(gate), the gate of the other layers.
template <class Scalar>
double silu_gate(std::uint64_t seed) {
  const Layer<Scalar> layer(seed);
  const GatedAttentionOutput<Scalar> y = gated_attention(layer.hidden, layer.p);
  const Matrix<Scalar> gated = y.attended.cwiseProduct(silu(y.gate));
  return relative_difference(gated, y.gated);
}

/// q_proj read as all queries, then all gates.
template <class Scalar>
double gate_layout(std::uint64_t seed) {
  Layer<Scalar> layer(seed);
  const Matrix<Scalar> out = gated_attention(layer.hidden, layer.p).out;
  const Matrix<Scalar> flat = layer.p.q_proj;
  for (Index h = 0; h < kHeads; ++h) {
    layer.p.q_proj.middleRows(2 * h * kWidth, kWidth) = flat.middleRows(h * kWidth, kWidth);
    layer.p.q_proj.middleRows((2 * h + 1) * kWidth, kWidth) = flat.middleRows((kHeads + h) * kWidth, kWidth);
  }
  return relative_difference(gated_attention(layer.hidden, layer.p).out, out);
}

/// Rotation before the norm: the norm's weights are not the same for both columns of a pair.
template <class Scalar>
double rotated_before_norm(std::uint64_t seed) {
  const Layer<Scalar> layer(seed);
  const GatedAttentionOutput<Scalar> y = gated_attention(layer.hidden, layer.p);
  const RotaryTables<Scalar> tables = rotary_tables(Index{0}, kTokens, Index{4}, layer.p.theta);
  const Matrix<Scalar> projected = linear(layer.hidden, layer.p.k_proj);
  const Matrix<Scalar> first = rotate(projected, tables, RotaryPairs::halves, kKeyHeads).leftCols(kWidth);
  const Matrix<Scalar> head = y.cache.k.leftCols(kWidth);
  return relative_difference(rms_norm_zero_centred(first, layer.p.k_norm, layer.p.epsilon), head);
}

/// Decode that counts positions from 0 again: keys in the cache are turned already, the new query is not.
template <class Scalar>
double position_restarted(std::uint64_t seed) {
  using std::sqrt;
  const Layer<Scalar> layer(seed);
  const GatedAttentionOutput<Scalar> whole = gated_attention(layer.hidden, layer.p);
  const Matrix<Scalar> last = layer.hidden.bottomRows(1);
  const GatedAttentionOutput<Scalar> alone = gated_attention(last, layer.p);
  AttentionInputs<Scalar> x;
  x.q = alone.q;
  x.k = whole.cache.k;
  x.v = whole.cache.v;
  x.heads = kHeads;
  x.key_heads = kKeyHeads;
  x.scale = Scalar(1) / Scalar(sqrt(Scalar(static_cast<double>(kWidth))));
  const Matrix<Scalar> expected = whole.attended.bottomRows(1);
  return relative_difference(softmax_attention(x), expected);
}

}  // namespace

std::vector<Identity> softmax_attention_identities() {
  using enum Expectation;
  constexpr std::string_view s = "softmax_attention";
  constexpr std::string_view r = "rotary_embedding";
  constexpr std::string_view g = "gated_attention";
  return {
      {"EQ-14", "attention_online", s, "full softmax = online in tiles, and tiles merged afterwards", equal,
       &online<double>, &online<Decimal50>},
      {"EQ-14", "attention_online_empty_tile", s, "masked keys, a whole first tile = the keys left out (8.3)",
       equal, &online_empty_tile<double>, &online_empty_tile<Decimal50>},
      {"EQ-14", "attention_decode", s, "full softmax = token by token with a key-value cache", equal,
       &decode<double>, &decode<Decimal50>},
      {"EQ-14", "attention_chunked_prefill", s, "full softmax = any cut, each segment in online form", equal,
       &chunked_prefill<double>, &chunked_prefill<Decimal50>},
      {"DEND-55", "attention_shift_of_scores", s, "one vector added to every key changes nothing", equal,
       &shift_of_scores<double>, &shift_of_scores<Decimal50>},
      {"DEND-55", "attention_convex", s, "outputs lie between the least and largest value seen", holds,
       &convex<double>, &convex<Decimal50>},
      {"EQ-15", "grouped_queries_by_index", s, "key heads shared by index = repeat_interleave", exact,
       &shared_by_index<double>, &shared_by_index<Decimal50>},
      {"EQ-15", "grouped_queries_stacked", s, "a group's queries in one product = repeat_interleave", equal,
       &grouped<double>, &grouped<Decimal50>},
      {"NC-tile", "attention_tiled_heads", s, "key heads tiled, not interleaved (EQ-15)", differs,
       &tiled_heads<double>, &tiled_heads<Decimal50>},
      {"NC-mask-off-by-one", "attention_mask_off_by_one", s, "a token that sees the next one", differs,
       &mask_off_by_one<double>, &mask_off_by_one<Decimal50>},
      {"NC-not-causal", "attention_not_causal", s, "no causal mask (DEND-55 does not print it)", differs,
       &not_causal<double>, &not_causal<Decimal50>},
      {"NC-no-rescaling", "attention_tiles_without_rescaling", s, "mean of the tiles' own softmaxes (8.3)",
       differs, &tiles_without_rescaling<double>, &tiles_without_rescaling<Decimal50>},
      {"CFG-10", "rotary_relative_position", r, "scores depend on distances: positions t and t + 3 alike",
       equal, &relative_position<double>, &relative_position<Decimal50>},
      {"CFG-10", "rotary_length_kept", r, "rotation keeps every row's length", equal, &length_kept<double>,
       &length_kept<Decimal50>},
      {"CFG-10", "rotary_pairs_permuted", r, "interleaved pairs = halves on columns evens, then odds", exact,
       &interleaved_is_permuted<double>, &interleaved_is_permuted<Decimal50>},
      {"NC-rotary-pairs", "rotary_other_pairs", r, "interleaved pairs where halves belong (5.7, 5.9)",
       differs, &other_pairs<double>, &other_pairs<Decimal50>},
      {"EQ-14", "gated_attention_any_split", g, "layer: one prefill = decode = any split, cache included",
       equal, &layer_any_split<double>, &layer_any_split<Decimal50>},
      {"GATT-2", "gated_attention_open_gate", g, "gate + infinity: plain grouped-query attention (5.7)",
       exact, &open_gate<double>, &open_gate<Decimal50>},
      {"GATT-2", "gated_attention_zero_gate", g, "gate 0: exactly half of plain attention (5.7)", exact,
       &zero_gate<double>, &zero_gate<Decimal50>},
      {"GATT-2", "gated_attention_closed_gate", g, "gate - infinity: zero", equal, &closed_gate<double>,
       &closed_gate<Decimal50>},
      {"NC-gate-missing", "gated_attention_gate_missing", g, "no gate at the output (GATT-2)", differs,
       &gate_missing<double>, &gate_missing<Decimal50>},
      {"NC-silu-gate", "gated_attention_silu_gate", g, "silu(gate) for the logistic gate (5.7)", differs,
       &silu_gate<double>, &silu_gate<Decimal50>},
      {"NC-gate-layout", "gated_attention_gate_layout", g,
       "q_proj split as all queries, then all gates (5.7)", differs, &gate_layout<double>,
       &gate_layout<Decimal50>},
      {"NC-rotation-before-norm", "gated_attention_rotated_before_norm", g,
       "rotation before the norm of k (5.7)", differs, &rotated_before_norm<double>,
       &rotated_before_norm<Decimal50>},
      {"NC-position-restarted", "gated_attention_position_restarted", g,
       "decode whose positions begin at 0 again (5.7)", differs, &position_restarted<double>,
       &position_restarted<Decimal50>},
  };
}

}  // namespace samestate
