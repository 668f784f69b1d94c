#pragma once

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "reference/error.h"
#include "reference/key_value_cache.h"
#include "reference/rounding_point.h"

/// Softmax attention (class C-ATT; DEND-55, EQUATIONS 5.7), per query head:
///   o_t = sum_s p_ts v_s,  p_t = softmax over the keys that t sees of scale q_t . k_s.
/// No form evaluates a masked score: keys to which public code adds -inf are left out.
namespace samestate {

namespace points {
inline constexpr PointRow kSoftmaxAttentionRows[] = {
    {"scores", "q k^T of a head, before its scale.", PointUse::product},
    {"weighed_values",
     "p V, whose weights are operands as they are stored: before they are divided, in a kernel that divides "
     "last.",
     PointUse::product},
    {"weights_of_tile",
     "The weights, after their exponential under the largest score so far, in a kernel that takes its keys "
     "in tiles.",
     PointUse::stored,
     {},
     "softmax_attention.weights"},
    {"weights_undivided",
     "The weights, after their exponential, in a kernel that divides by their sum last.",
     PointUse::stored,
     {},
     "softmax_attention.weights"},
    {"weights", "The weights p, after their division by their sum."},
};
inline constexpr PointTable softmax_attention{"softmax_attention", PointTier::equation, kSoftmaxAttentionRows,
                                              PointKeys::whole};
}  // namespace points

/// The inputs of every form. Heads stand side by side in a row. Several query heads may share a key head
/// (grouped queries, CFG-9): those heads h with the same h / (heads / key_heads).
template <class Scalar>
struct AttentionInputs {
  Matrix<Scalar> q;  ///< [T, heads * d], the LAST T of the S positions
  Matrix<Scalar> k;  ///< [S, key_heads * d]
  Matrix<Scalar> v;  ///< [S, key_heads * dv]
  Index heads = 1;
  Index key_heads = 1;
  Scalar scale{1};             ///< multiplies the scores: d^-1/2 in every layer here
  bool causal = true;          ///< token t, at position S - T + t, sees no later position
  std::vector<bool> key_mask;  ///< [S], false for a key that no query sees (padding); empty if all are seen

  [[nodiscard]] Index tokens() const { return q.rows(); }
  [[nodiscard]] Index keys() const { return k.rows(); }
  [[nodiscard]] Index width() const { return q.cols() / heads; }
  [[nodiscard]] Index value_width() const { return v.cols() / key_heads; }
  /// The number of query heads that share a key head.
  [[nodiscard]] Index group() const { return heads / key_heads; }
  [[nodiscard]] bool sees(Index t, Index s) const {
    return (!causal || s <= keys() - tokens() + t) &&
           (key_mask.empty() || key_mask[static_cast<std::size_t>(s)]);
  }
};

/// Throws Error, with the sizes, unless the inputs fit together.
template <class Scalar>
void require_consistent(const AttentionInputs<Scalar>& x) {
  if (x.heads < 1 || x.key_heads < 1 || x.heads % x.key_heads != 0) {
    throw Error("attention: " + std::to_string(x.heads) + " query heads must be a multiple of " +
                std::to_string(x.key_heads) + " key heads");
  }
  if (x.q.cols() % x.heads != 0 || x.k.cols() != x.key_heads * x.width() || x.v.cols() % x.key_heads != 0 ||
      x.v.rows() != x.keys()) {
    throw Error("attention: q has " + std::to_string(x.q.cols()) + " columns in " + std::to_string(x.heads) +
                " heads, k is " + std::to_string(x.k.rows()) + " x " + std::to_string(x.k.cols()) + ", v " +
                std::to_string(x.v.rows()) + " x " + std::to_string(x.v.cols()) + " in " +
                std::to_string(x.key_heads) + " heads: they disagree");
  }
  if (x.causal && x.tokens() > x.keys()) {
    throw Error("attention: " + std::to_string(x.tokens()) + " causal queries and only " +
                std::to_string(x.keys()) + " keys; pass the keys of every query");
  }
  if (!x.key_mask.empty() && static_cast<Index>(x.key_mask.size()) != x.keys()) {
    throw Error("attention: a mask of " + std::to_string(x.key_mask.size()) + " for " +
                std::to_string(x.keys()) + " keys");
  }
}

namespace detail {

/// The columns of head `index`.
template <class Scalar>
[[nodiscard]] Matrix<Scalar> head_columns(const Matrix<Scalar>& x, Index index, Index width) {
  return x.middleCols(index * width, width);
}

[[noreturn]] inline void throw_fully_masked(Index token) {
  throw Error("attention: token " + std::to_string(token) +
              " sees no key, its softmax is undefined; leave padding tokens out of the queries");
}

/// Sums as a kernel writes them. A scalar whose samples round by position settles each of them, because equal numbers may be
/// sums of different terms, or of the same terms in another order.
template <class Scalar>
[[nodiscard]] Matrix<Scalar> settled(Matrix<Scalar> sums) {
  if constexpr (requires(const Scalar& sum) { sum.settled(); }) {
    for (Index i = 0; i < sums.size(); ++i) sums.data()[i] = sums.data()[i].settled();
  }
  return sums;
}

/// scale q k^T.
template <class Scalar>
[[nodiscard]] Matrix<Scalar> scores_of(const Matrix<Scalar>& q, const Matrix<Scalar>& k, const Scalar& scale,
                                       Point at = points::softmax_attention["scores"]) {
  return scale * settled(matrix_product(q, k.transpose(), at));
}

/// The largest score of token t among the keys [first, first + row.size()) that it sees; nullopt if it sees
/// none.
template <class Scalar, class Row>
[[nodiscard]] std::optional<Scalar> largest_seen(const AttentionInputs<Scalar>& x, Index t, Index first,
                                                 const Row& row) {
  std::optional<Scalar> largest;
  for (Index s = 0; s < row.size(); ++s) {
    if (!x.sees(t, first + s)) continue;
    if (largest)
      take_larger(*largest, Scalar(row(s)));
    else
      largest = row(s);
  }
  return largest;
}

/// The number of keys that a kernel takes at a time when it stores its weights under the largest score so far
/// and rescales them when that score rises; 0 if it takes all at once. Only scalars that model such kernels,
/// which divide the weights last, say otherwise.
template <class Scalar>
[[nodiscard]] Index key_tile(Index keys) {
  if constexpr (requires { RoundingPoint<Scalar>::key_tile(keys); }) {
    return RoundingPoint<Scalar>::divides_last() ? RoundingPoint<Scalar>::key_tile(keys) : 0;
  } else {
    return 0;
  }
}

/// True if the kernel keeps its running maximum although a score is above it. Scalars say so that model
/// kernels which raise the maximum only if rescaling pays (FlashAttention-4 does for a difference of 8 in the
/// exponent of 2).
template <class Scalar>
[[nodiscard]] bool keeps_maximum(const Scalar& maximum, const Scalar& score) {
  if constexpr (requires { RoundingPoint<Scalar>::lazy_by(); }) {
    const double by = RoundingPoint<Scalar>::lazy_by();
    return by > 0.0 && !(score > maximum + Scalar(by));
  } else {
    return false;
  }
}

/// True if the kernel takes its tiles of keys from the last to the first, as FlashAttention-2 does. Only
/// scalars that model such kernels say so.
template <class Scalar>
[[nodiscard]] bool last_keys_first() {
  if constexpr (requires { RoundingPoint<Scalar>::last_keys_first(); }) {
    return RoundingPoint<Scalar>::last_keys_first();
  } else {
    return false;
  }
}

/// The number of keys in each part that has a maximum of its own, out of `keys`, as in kernels for long
/// contexts (flash decoding); 0 if all keys are one part. Only scalars that model such kernels say otherwise.
template <class Scalar>
[[nodiscard]] Index keys_a_part(Index keys) {
  if constexpr (requires { RoundingPoint<Scalar>::keys_a_part(keys); }) {
    return RoundingPoint<Scalar>::keys_a_part(keys);
  } else {
    return 0;
  }
}

/// The first key of each tile of `tile` keys, out of `keys`, in the order in which the tiles are taken.
template <class Scalar>
[[nodiscard]] std::vector<Index> tiles_of_keys(Index keys, Index tile) {
  std::vector<Index> begins;
  for (Index begin = 0; begin < keys; begin += std::min(tile, keys - begin)) begins.push_back(begin);
  if (last_keys_first<Scalar>()) std::reverse(begins.begin(), begins.end());
  return begins;
}

/// For each tile of keys, the largest score of token t so far in its part, or the maximum that the kernel
/// keeps instead. For tiles before any key of the part has been seen the value is arbitrary.
template <class Scalar, class Row>
[[nodiscard]] std::vector<Scalar> largest_so_far(const AttentionInputs<Scalar>& x, Index t, Index tile,
                                                 const Row& row) {
  const std::vector<Index> tiles = tiles_of_keys<Scalar>(row.size(), tile);
  std::vector<Scalar> out(tiles.size());
  std::optional<Scalar> largest;
  const Index of_part = keys_a_part<Scalar>(row.size());
  Index part = -1;
  for (const Index begin : tiles) {
    if (of_part > 0 && begin / of_part != std::exchange(part, begin / of_part)) largest.reset();
    const std::optional<Scalar> here =
        largest_seen(x, t, begin, row.segment(begin, std::min(tile, row.size() - begin)));
    if (here && largest && !keeps_maximum(*largest, *here)) take_larger(*largest, *here);
    if (!largest) largest = here;
    out[static_cast<std::size_t>(begin / tile)] = largest ? softmax_shift(*largest) : Scalar(0);
  }
  return out;
}

/// Softmax over the keys that are seen, with weights as operands of p V. Row i of `scores` belongs to token
/// (first + i) mod T. scores: [n, S].
template <class Scalar>
[[nodiscard]] Matrix<Scalar> visible_softmax(const AttentionInputs<Scalar>& x, Matrix<Scalar> scores,
                                             Index first = 0) {
  using std::exp;
  const bool last = RoundingPoint<Scalar>::divides_last();
  const Index tile = key_tile<Scalar>(x.keys());
  for (Index i = 0; i < scores.rows(); ++i) {
    const Index t = (first + i) % x.tokens();
    const std::optional<Scalar> largest = largest_seen(x, t, 0, scores.row(i));
    if (!largest) throw_fully_masked(t);
    const Scalar maximum = softmax_shift(*largest);
    Scalar sum(0);
    const std::vector<Scalar> so_far =
        tile > 0 ? largest_so_far(x, t, tile, scores.row(i)) : std::vector<Scalar>{};
    for (Index s = 0; s < x.keys(); ++s) {
      if (tile > 0 && x.sees(t, s)) {
        const Scalar& under = so_far[static_cast<std::size_t>(s / tile)];
        const Scalar weight = exp(Scalar(scores(i, s) - under));
        const Scalar rescaled = exp(Scalar(under - maximum));
        const Scalar kept =
            operand_scalar(stored_scalar(weight, points::softmax_attention["weights_of_tile"]),
                           points::softmax_attention["weighed_values"]);
        scores(i, s) = kept * rescaled;
        sum += RoundingPoint<Scalar>::summed(Scalar(weight * rescaled), scores(i, s));
        continue;
      }
      scores(i, s) = x.sees(t, s) ? Scalar(exp(Scalar(scores(i, s) - maximum))) : Scalar(0);
      if (last) {
        const Scalar weight = scores(i, s);
        scores(i, s) = operand_scalar(stored_scalar(weight, points::softmax_attention["weights_undivided"]),
                                      points::softmax_attention["weighed_values"]);
        sum += RoundingPoint<Scalar>::summed(weight, scores(i, s));
      } else {
        sum += scores(i, s);
      }
    }
    for (Index s = 0; s < x.keys(); ++s) scores(i, s) /= sum;
  }
  return last ? scores
              : operand(stored(std::move(scores), points::softmax_attention["weights"]),
                        points::softmax_attention["weighed_values"]);
}

}  // namespace detail

/// p of one query head, [T, S]. Throws Error if a token sees no key, sizes disagree, or there is no such
/// head.
template <class Scalar>
[[nodiscard]] Matrix<Scalar> attention_probabilities(const AttentionInputs<Scalar>& x, Index head) {
  require_consistent(x);
  if (head < 0 || head >= x.heads) {
    throw Error("attention: no head " + std::to_string(head) + " among " + std::to_string(x.heads));
  }
  const Matrix<Scalar> Q = detail::head_columns(x.q, head, x.width());
  const Matrix<Scalar> K = detail::head_columns(x.k, head / x.group(), x.width());
  const Matrix<Scalar> scores = detail::scores_of(Q, K, x.scale);
  return detail::visible_softmax(x, scores);
}

/// The equation, head by head; key heads are shared by index and none is copied (EQ-15). -> [T, heads * dv].
/// Throws Error as attention_probabilities does.
template <class Scalar>
[[nodiscard]] Matrix<Scalar> softmax_attention(const AttentionInputs<Scalar>& x) {
  require_consistent(x);
  const Index dv = x.value_width();
  Matrix<Scalar> o(x.tokens(), x.heads * dv);
  for (Index h = 0; h < x.heads; ++h) {
    const Matrix<Scalar> V =
        operand(detail::head_columns(x.v, h / x.group(), dv), points::softmax_attention["weighed_values"]);
    o.middleCols(h * dv, dv) = attention_probabilities(x, h) * V;
  }
  return o;
}

/// The same with the queries of a group stacked, so that each key head takes one product, as kernels for
/// grouped queries do (EQ-15). Throws Error as attention_probabilities does.
template <class Scalar>
[[nodiscard]] Matrix<Scalar> softmax_attention_grouped(const AttentionInputs<Scalar>& x) {
  require_consistent(x);
  const Index T = x.tokens();
  const Index d = x.width();
  const Index dv = x.value_width();
  Matrix<Scalar> o(T, x.heads * dv);
  for (Index kh = 0; kh < x.key_heads; ++kh) {
    Matrix<Scalar> Q(x.group() * T, d);
    for (Index i = 0; i < x.group(); ++i) {
      Q.middleRows(i * T, T) = detail::head_columns(x.q, kh * x.group() + i, d);
    }
    const Matrix<Scalar> K = detail::head_columns(x.k, kh, d);
    const Matrix<Scalar> V =
        operand(detail::head_columns(x.v, kh, dv), points::softmax_attention["weighed_values"]);
    Matrix<Scalar> O(Q.rows(), dv);
    // Rows are independent of each other, and all scores at once would take gigabytes for 4,096 tokens.
    constexpr Index kRows = 256;
    for (Index i = 0; i < Q.rows(); i += kRows) {
      const Index rows = std::min(kRows, Q.rows() - i);
      const Matrix<Scalar> scores = detail::scores_of<Scalar>(Q.middleRows(i, rows), K, x.scale);
      O.middleRows(i, rows) = detail::visible_softmax(x, scores, i) * V;
    }
    for (Index i = 0; i < x.group(); ++i) {
      o.middleCols((kh * x.group() + i) * dv, dv) = O.middleRows(i * T, T);
    }
  }
  return o;
}

/// Key and value heads copied, one for each query head: head h gets h / group (repeat_interleave).
template <class Scalar>
[[nodiscard]] AttentionInputs<Scalar> with_repeated_heads(const AttentionInputs<Scalar>& x) {
  require_consistent(x);
  AttentionInputs<Scalar> out = x;
  out.key_heads = x.heads;
  out.k.resize(x.keys(), x.heads * x.width());
  out.v.resize(x.keys(), x.heads * x.value_width());
  for (Index h = 0; h < x.heads; ++h) {
    out.k.middleCols(h * x.width(), x.width()) = detail::head_columns(x.k, h / x.group(), x.width());
    out.v.middleCols(h * x.value_width(), x.value_width()) =
        detail::head_columns(x.v, h / x.group(), x.value_width());
  }
  return out;
}

/// Chunked prefill, and decode if every token is a segment (EQ-14): the queries in segments between `cuts`,
/// each against the cache of all keys so far. Cuts are query indices in [0, T], not decreasing. `run`
/// evaluates one segment in any form. Throws Error for non-causal inputs and for cuts out of order.
template <class Scalar, class Run>
[[nodiscard]] Matrix<Scalar> softmax_attention_resumed(const AttentionInputs<Scalar>& x,
                                                       const std::vector<Index>& cuts, Run&& run) {
  require_consistent(x);
  if (!x.causal) throw Error("attention: without a causal mask the first tokens see the last; no split");
  const Index past = x.keys() - x.tokens();
  KeyValueCache<Scalar> cache{x.k.topRows(past), x.v.topRows(past)};
  Matrix<Scalar> o(x.tokens(), x.heads * x.value_width());
  Index begin = 0;
  for (std::size_t i = 0; i <= cuts.size(); ++i) {
    const Index end = i < cuts.size() ? cuts[i] : x.tokens();
    if (end < begin || end > x.tokens()) {
      throw Error("cut " + std::to_string(end) + ": cuts must not decrease and lie in 0.." +
                  std::to_string(x.tokens()));
    }
    const Index n = end - begin;
    cache = cache.appended(x.k.middleRows(past + begin, n), x.v.middleRows(past + begin, n));
    AttentionInputs<Scalar> part = x;
    part.q = x.q.middleRows(begin, n);
    part.k = cache.k;
    part.v = cache.v;
    if (!x.key_mask.empty()) part.key_mask.resize(static_cast<std::size_t>(past + end));
    o.middleRows(begin, n) = run(part);
    begin = end;
  }
  return o;
}

/// One token per call, in any form (EQ-14).
template <class Scalar>
[[nodiscard]] Matrix<Scalar> softmax_attention_decode(const AttentionInputs<Scalar>& x) {
  std::vector<Index> cuts;
  for (Index t = 1; t < x.tokens(); ++t) cuts.push_back(t);
  return softmax_attention_resumed(
      x, cuts, [](const AttentionInputs<Scalar>& part) { return softmax_attention(part); });
}

}  // namespace samestate
