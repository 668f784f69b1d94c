#include "reference/softmax_attention.h"

#include <algorithm>

#include "oracles/proofs/identities/draw.h"
#include "oracles/proofs/identities/groups.h"
#include "reference/layers/gated_attention.h"
#include "reference/online_softmax.h"
#include "reference/scalars.h"

namespace samestate::softmax_attention_identities {
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

/// q and k of one head turned by the tables of these positions.
template <class Scalar>
Matrix<Scalar> turned_scores(const Matrix<Scalar>& q, const Matrix<Scalar>& k, Index first, Index width,
                             RotaryPairs pairs) {
  const RotaryTables<Scalar> tables = rotary_tables(first, q.rows(), width, Scalar(100));
  return rotate(q, tables, pairs) * rotate(k, tables, pairs).transpose();
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

}  // namespace

std::vector<Identity> rows() {
  using enum Expectation;
  constexpr std::string_view kSystem = "softmax_attention";
  constexpr std::string_view kRotary = "rotary_embedding";
  constexpr std::string_view kGatedAttention = "gated_attention";
  return {
      {"EQ-14", "attention_online", kSystem, "full softmax = online in tiles, and tiles merged afterwards",
       equal,
       []<class Scalar>(std::uint64_t seed) {
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
       }},
      // A mask that empties a whole first tile: nothing seen yet, no maximum to rescale by (8.3).
      {"EQ-14", "attention_online_empty_tile", kSystem,
       "masked keys, a whole first tile = the keys left out (8.3)", equal,
       []<class Scalar>(std::uint64_t seed) {
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
       }},
      {"EQ-14", "attention_decode", kSystem, "full softmax = token by token with a key-value cache", equal,
       []<class Scalar>(std::uint64_t seed) {
         const AttentionInputs<Scalar> x = inputs<Scalar>(seed);
         return relative_difference(softmax_attention_decode(x), softmax_attention(x));
       }},
      {"EQ-14", "attention_chunked_prefill", kSystem, "full softmax = any cut, each segment in online form",
       equal,
       []<class Scalar>(std::uint64_t seed) {
         const AttentionInputs<Scalar> x = inputs<Scalar>(seed);
         const Matrix<Scalar> o = softmax_attention(x);
         double worst = 0.0;
         for (Index cut = 0; cut <= kTokens; ++cut) {
           const auto tiles = [](const AttentionInputs<Scalar>& part) {
             return softmax_attention_online(part, 2);
           };
           worst =
               std::max(worst, relative_difference(softmax_attention_resumed(x, {cut, kTokens}, tiles), o));
         }
         return worst;
       }},
      // A vector added to every key adds q . u to every score of a row, and the maximum takes it away again.
      {"DEND-55", "attention_shift_of_scores", kSystem, "one vector added to every key changes nothing",
       equal,
       []<class Scalar>(std::uint64_t seed) {
         AttentionInputs<Scalar> x = inputs<Scalar>(seed);
         const Matrix<Scalar> o = softmax_attention(x);
         const Vector<Scalar> u = IdentityDraw<Scalar>(seed + 1).normal_vector(x.k.cols());
         x.k.rowwise() += u.transpose();
         return relative_difference(softmax_attention(x), o);
       }},
      // Returns by how much an output leaves the range of its value column: probabilities are a convex
      // combination.
      {"DEND-55", "attention_convex", kSystem, "outputs lie between the least and largest value seen", holds,
       []<class Scalar>(std::uint64_t seed) {
         AttentionInputs<Scalar> x = inputs<Scalar>(seed);
         const Matrix<Scalar> o = softmax_attention(with_repeated_heads(x));
         const Matrix<Scalar> v = with_repeated_heads(x).v;
         double worst = 0.0;
         for (Index c = 0; c < o.cols(); ++c) {
           for (Index t = 0; t < kTokens; ++t) {
             const Scalar high = v.col(c).head(t + 1).maxCoeff();
             const Scalar low = v.col(c).head(t + 1).minCoeff();
             worst = std::max({worst, static_cast<double>(Scalar(o(t, c) - high)),
                               static_cast<double>(Scalar(low - o(t, c)))});
           }
         }
         return worst;
       }},
      {"EQ-15", "grouped_queries_by_index", kSystem, "key heads shared by index = repeat_interleave", exact,
       []<class Scalar>(std::uint64_t seed) {
         const AttentionInputs<Scalar> x = inputs<Scalar>(seed);
         return relative_difference(softmax_attention(x), softmax_attention(with_repeated_heads(x)));
       }},
      {"EQ-15", "grouped_queries_stacked", kSystem, "a group's queries in one product = repeat_interleave",
       equal,
       []<class Scalar>(std::uint64_t seed) {
         const AttentionInputs<Scalar> x = inputs<Scalar>(seed);
         return relative_difference(softmax_attention_grouped(x), softmax_attention(with_repeated_heads(x)));
       }},
      // Query head h reads key head h mod Hk: `tile` where `repeat_interleave` belongs.
      {"NC-tile", "attention_tiled_heads", kSystem, "key heads tiled, not interleaved (EQ-15)", differs,
       []<class Scalar>(std::uint64_t seed) {
         const AttentionInputs<Scalar> x = inputs<Scalar>(seed);
         AttentionInputs<Scalar> tiled = x;
         tiled.key_heads = kHeads;
         tiled.k = x.k.replicate(1, kHeads / kKeyHeads);
         tiled.v = x.v.replicate(1, kHeads / kKeyHeads);
         return relative_difference(softmax_attention(tiled), softmax_attention(x));
       }},
      {"NC-mask-off-by-one", "attention_mask_off_by_one", kSystem, "a token that sees the next one", differs,
       []<class Scalar>(std::uint64_t seed) {
         const AttentionInputs<Scalar> x = inputs<Scalar>(seed);
         AttentionInputs<Scalar> ahead = x;
         ahead.q = x.q.topRows(kTokens - 1);
         const Matrix<Scalar> expected = softmax_attention(x).topRows(kTokens - 1);
         return relative_difference(softmax_attention(ahead), expected);
       }},
      {"NC-not-causal", "attention_not_causal", kSystem, "no causal mask (DEND-55 does not print it)",
       differs,
       []<class Scalar>(std::uint64_t seed) {
         AttentionInputs<Scalar> x = inputs<Scalar>(seed);
         const Matrix<Scalar> o = softmax_attention(x);
         x.causal = false;
         return relative_difference(softmax_attention(x), o);
       }},
      // Tiles averaged by their own sums, without the rescaling to a common maximum.
      {"NC-no-rescaling", "attention_tiles_without_rescaling", kSystem,
       "mean of the tiles' own softmaxes (8.3)", differs,
       []<class Scalar>(std::uint64_t seed) {
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
       }},
      {"CFG-10", "rotary_relative_position", kRotary,
       "scores depend on distances: positions t and t + 3 alike", equal,
       []<class Scalar>(std::uint64_t seed) {
         IdentityDraw<Scalar> draw(seed);
         const Matrix<Scalar> q = draw.normal(kTokens, kWidth);
         const Matrix<Scalar> k = draw.normal(kTokens, kWidth);
         double worst = 0.0;
         for (const RotaryPairs pairs : {RotaryPairs::halves, RotaryPairs::interleaved}) {
           const Matrix<Scalar> here = turned_scores(q, k, 0, 4, pairs);
           worst = std::max(worst, relative_difference(turned_scores(q, k, 3, 4, pairs), here));
         }
         return worst;
       }},
      {"CFG-10", "rotary_length_kept", kRotary, "rotation keeps every row's length", equal,
       []<class Scalar>(std::uint64_t seed) {
         const Matrix<Scalar> x = IdentityDraw<Scalar>(seed).normal(kTokens, kWidth);
         const RotaryTables<Scalar> tables = rotary_tables(Index{0}, kTokens, Index{4}, Scalar(100));
         const Vector<Scalar> before = x.rowwise().squaredNorm();
         const Vector<Scalar> after = rotate(x, tables).rowwise().squaredNorm();
         return relative_difference(after, before);
       }},
      {"CFG-10", "rotary_pairs_permuted", kRotary, "interleaved pairs = halves on columns evens, then odds",
       exact,
       []<class Scalar>(std::uint64_t seed) {
         const Matrix<Scalar> x = IdentityDraw<Scalar>(seed).normal(kTokens, kWidth);
         const RotaryTables<Scalar> tables = rotary_tables(Index{0}, kTokens, kWidth, Scalar(100));
         return relative_difference(evens_then_odds(rotate(x, tables, RotaryPairs::interleaved)),
                                    rotate(evens_then_odds(x), tables, RotaryPairs::halves));
       }},
      {"NC-rotary-pairs", "rotary_other_pairs", kRotary, "interleaved pairs where halves belong (5.7, 5.9)",
       differs,
       []<class Scalar>(std::uint64_t seed) {
         IdentityDraw<Scalar> draw(seed);
         const Matrix<Scalar> q = draw.normal(kTokens, kWidth);
         const Matrix<Scalar> k = draw.normal(kTokens, kWidth);
         return relative_difference(turned_scores(q, k, 0, kWidth, RotaryPairs::interleaved),
                                    turned_scores(q, k, 0, kWidth, RotaryPairs::halves));
       }},
      {"EQ-14", "gated_attention_any_split", kGatedAttention,
       "layer: one prefill = decode = any split, cache included", equal,
       []<class Scalar>(std::uint64_t seed) {
         const Layer<Scalar> layer(seed);
         const GatedAttentionOutput<Scalar> whole = gated_attention(layer.hidden, layer.p);
         const auto tiles = [](const AttentionInputs<Scalar>& x) { return softmax_attention_online(x, 2); };
         double worst = 0.0;
         for (const std::vector<Index>& cuts : {std::vector<Index>{1, 2, 3, 4, 5, 6, 7, 8},
                                                std::vector<Index>{4}, std::vector<Index>{0, 7, 7}}) {
           const GatedAttentionOutput<Scalar> parts =
               gated_attention_resumed(layer.hidden, layer.p, cuts, tiles);
           worst = std::max({worst, relative_difference(parts.out, whole.out),
                             relative_difference(parts.attended, whole.attended),
                             relative_difference(parts.cache.k, whole.cache.k),
                             relative_difference(parts.cache.v, whole.cache.v)});
         }
         return worst;
       }},
      // e^-5000 is 0 in comparison with 1 in every precision here.
      {"GATT-2", "gated_attention_open_gate", kGatedAttention,
       "gate + infinity: plain grouped-query attention (5.7)", exact,
       []<class Scalar>(std::uint64_t seed) {
         Layer<Scalar> layer(seed);
         layer.set_gates(Scalar(5000));
         return relative_difference(gated_attention(layer.hidden, layer.p).out, layer.without_gate());
       }},
      {"GATT-2", "gated_attention_zero_gate", kGatedAttention,
       "gate 0: exactly half of plain attention (5.7)", exact,
       []<class Scalar>(std::uint64_t seed) {
         Layer<Scalar> layer(seed);
         layer.set_gates(Scalar(0));
         const Matrix<Scalar> half = layer.without_gate() / Scalar(2);
         return relative_difference(gated_attention(layer.hidden, layer.p).out, half);
       }},
      {"GATT-2", "gated_attention_closed_gate", kGatedAttention, "gate - infinity: zero", equal,
       []<class Scalar>(std::uint64_t seed) {
         Layer<Scalar> layer(seed);
         layer.set_gates(Scalar(-5000));
         const Matrix<Scalar> out = gated_attention(layer.hidden, layer.p).out;
         return relative_difference(out, Matrix<Scalar>(Matrix<Scalar>::Zero(out.rows(), out.cols())));
       }},
      {"NC-gate-missing", "gated_attention_gate_missing", kGatedAttention, "no gate at the output (GATT-2)",
       differs,
       []<class Scalar>(std::uint64_t seed) {
         const Layer<Scalar> layer(seed);
         return relative_difference(layer.without_gate(), gated_attention(layer.hidden, layer.p).out);
       }},
      // silu(gate), the gate of the other layers.
      {"NC-silu-gate", "gated_attention_silu_gate", kGatedAttention, "silu(gate) for the logistic gate (5.7)",
       differs,
       []<class Scalar>(std::uint64_t seed) {
         const Layer<Scalar> layer(seed);
         const GatedAttentionOutput<Scalar> y = gated_attention(layer.hidden, layer.p);
         const Matrix<Scalar> gated = y.attended.cwiseProduct(silu(y.gate));
         return relative_difference(gated, y.gated);
       }},
      // q_proj read as all queries, then all gates.
      {"NC-gate-layout", "gated_attention_gate_layout", kGatedAttention,
       "q_proj split as all queries, then all gates (5.7)", differs,
       []<class Scalar>(std::uint64_t seed) {
         Layer<Scalar> layer(seed);
         const Matrix<Scalar> out = gated_attention(layer.hidden, layer.p).out;
         const Matrix<Scalar> flat = layer.p.q_proj;
         for (Index h = 0; h < kHeads; ++h) {
           layer.p.q_proj.middleRows(2 * h * kWidth, kWidth) = flat.middleRows(h * kWidth, kWidth);
           layer.p.q_proj.middleRows((2 * h + 1) * kWidth, kWidth) =
               flat.middleRows((kHeads + h) * kWidth, kWidth);
         }
         return relative_difference(gated_attention(layer.hidden, layer.p).out, out);
       }},
      // Rotation before the norm: the norm's weights are not the same for both columns of a pair.
      {"NC-rotation-before-norm", "gated_attention_rotated_before_norm", kGatedAttention,
       "rotation before the norm of k (5.7)", differs,
       []<class Scalar>(std::uint64_t seed) {
         const Layer<Scalar> layer(seed);
         const GatedAttentionOutput<Scalar> y = gated_attention(layer.hidden, layer.p);
         const RotaryTables<Scalar> tables = rotary_tables(Index{0}, kTokens, Index{4}, layer.p.theta);
         const Matrix<Scalar> projected = linear(layer.hidden, layer.p.k_proj);
         const Matrix<Scalar> first =
             rotate(projected, tables, RotaryPairs::halves, kKeyHeads).leftCols(kWidth);
         const Matrix<Scalar> head = y.cache.k.leftCols(kWidth);
         return relative_difference(rms_norm_zero_centred(first, layer.p.k_norm, layer.p.epsilon), head);
       }},
      // Decode that counts positions from 0 again: keys in the cache are turned already, the new query is not.
      {"NC-position-restarted", "gated_attention_position_restarted", kGatedAttention,
       "decode whose positions begin at 0 again (5.7)", differs,
       []<class Scalar>(std::uint64_t seed) {
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
       }},
  };
}

}  // namespace samestate::softmax_attention_identities
