#pragma once

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "reference/softmax_attention.h"

/// Softmax attention over one tile of keys at a time, in memory that does not grow with their number (EQ-14).
namespace samestate {

namespace points {
inline constexpr PointRow kOnlineSoftmaxRows[] = {
    {"weighed_values",
     "The weights of a tile of keys times their values.",
     PointUse::product,
     {},
     "softmax_attention.weighed_values"},
    {"weights",
     "The weights of a tile of keys, after their exponential under the largest score so far.",
     PointUse::stored,
     {},
     "softmax_attention.weights"},
};
inline constexpr PointTable online_softmax{"online_softmax", PointTier::equation, kOnlineSoftmaxRows,
                                           PointKeys::tiles};
}  // namespace points

/// The softmax-weighted mean of values that arrive a few at a time. It starts without a maximum, because m =
/// -inf would make the first rescaling exp(-inf - -inf), a NaN (EQUATIONS 8.3).
template <class Scalar>
struct OnlineSoftmax {
  bool empty = true;      ///< no key so far
  Scalar maximum{0};      ///< m, the largest score so far
  Scalar sum{0};          ///< l = sum e^{score - m}
  Vector<Scalar> values;  ///< [dv] sum e^{score - m} v

  explicit OnlineSoftmax(Index value_width) : values(Vector<Scalar>::Zero(value_width)) {}

  /// m <- max(m, score), and rescales the sums taken under the old m.
  void raise(const Scalar& score) {
    using std::exp;
    if (empty) {
      empty = false;
      maximum = softmax_shift(score);
      return;
    }
    Scalar raised = maximum;
    if (take_larger(raised, score)) {
      raised = softmax_shift(raised);
      const Scalar factor = exp(Scalar(maximum - raised));
      sum *= factor;
      values *= factor;
      maximum = raised;
    }
  }
  /// Adds the weight of one key to the sum and returns it as an operand. m must already have been raised to
  /// the key's score.
  [[nodiscard]] Scalar weigh(const Scalar& score) {
    using std::exp;
    const Scalar weight = exp(Scalar(score - maximum));
    const Scalar kept = operand_scalar(stored_scalar(weight, points::online_softmax["weights"]),
                                       points::online_softmax["weighed_values"]);
    sum += RoundingPoint<Scalar>::summed(weight, kept);
    return kept;
  }
  /// Adds one key. value: [1, dv], an operand.
  template <class Row>
  void add(const Scalar& score, const Row& value) {
    values += weigh(score) * value.transpose();
  }
  /// Adds the keys of `other`.
  void merge(const OnlineSoftmax& other) {
    using std::exp;
    if (other.empty) return;
    raise(other.maximum);
    const Scalar factor = exp(Scalar(other.maximum - maximum));
    sum += factor * other.sum;
    values += factor * other.values;
  }
};

namespace detail {

/// Adds the keys [begin, end) of query head h to the rows' running softmax.
template <class Scalar>
void add_tile(const AttentionInputs<Scalar>& x, Index h, Index begin, Index end,
              std::vector<OnlineSoftmax<Scalar>>& rows) {
  const auto tile_of = [&](const Matrix<Scalar>& rows, Index width) {
    return rows.block(begin, h / x.group() * width, end - begin, width);
  };
  const Matrix<Scalar> K = tile_of(x.k, x.width());
  const Matrix<Scalar> V =
      operand<Scalar>(tile_of(x.v, x.value_width()), points::online_softmax["weighed_values"]);
  const Matrix<Scalar> scores = scores_of(head_columns(x.q, h, x.width()), K, x.scale);
  // A scalar whose sums hold for any order takes the whole tile in one product; the weight zero of an unseen
  // key changes nothing.
  constexpr bool kAnyOrder = requires(Scalar v) { RoundingPoint<Scalar>::joins_any_sum(v); };
  bool together = false;
  Matrix<Scalar> weights;
  if constexpr (kAnyOrder) {
    together = std::all_of(V.data(), V.data() + V.size(), RoundingPoint<Scalar>::joins_any_sum);
    weights = Matrix<Scalar>::Zero(x.tokens(), end - begin);
  }
  for (Index t = 0; t < x.tokens(); ++t) {
    OnlineSoftmax<Scalar>& row = rows[static_cast<std::size_t>(t)];
    const std::optional<Scalar> largest = largest_seen(x, t, begin, scores.row(t));
    if (!largest) continue;
    if (row.empty || !keeps_maximum(row.maximum, *largest)) row.raise(*largest);
    for (Index s = begin; s < end; ++s) {
      if (!x.sees(t, s)) continue;
      if (together) {
        weights(t, s - begin) = row.weigh(scores(t, s - begin));
      } else {
        row.add(scores(t, s - begin), V.row(s - begin));
      }
    }
  }
  if (!together) return;
  const Matrix<Scalar> values = weights * V;
  for (Index t = 0; t < x.tokens(); ++t)
    rows[static_cast<std::size_t>(t)].values += values.row(t).transpose();
}

/// Keys in tiles of `tile`, added to one running softmax per row, or to one per tile, merged afterwards.
template <class Scalar>
[[nodiscard]] Matrix<Scalar> tiled_attention(const AttentionInputs<Scalar>& x, Index tile, bool merged) {
  require_consistent(x);
  if (tile < 1) throw Error("attention: tile=" + std::to_string(tile) + ": a tile holds at least 1 key");
  const Index dv = x.value_width();
  // Keys per part, for a kernel that takes whole tiles in parts of its own: as many tiles as fit.
  const Index of_part = merged ? 0 : keys_a_part<Scalar>(x.keys()) / tile * tile;
  const std::vector<OnlineSoftmax<Scalar>> none(static_cast<std::size_t>(x.tokens()),
                                                OnlineSoftmax<Scalar>(dv));
  Matrix<Scalar> o(x.tokens(), x.heads * dv);
  for (Index h = 0; h < x.heads; ++h) {
    std::vector<OnlineSoftmax<Scalar>> rows = none, part = none;
    const auto merge_part = [&] {
      for (std::size_t t = 0; t < rows.size(); ++t) rows[t].merge(part[t]);
      part = none;
    };
    Index from = -1;  // the part that the previous tile belongs to
    for (const Index begin : tiles_of_keys<Scalar>(x.keys(), tile)) {
      const Index end = tile < x.keys() - begin ? begin + tile : x.keys();
      const Index before = std::exchange(from, of_part > 0 ? begin / of_part : 0);
      if (before >= 0 && (merged || before != from)) merge_part();
      add_tile(x, h, begin, end, of_part > 0 || merged ? part : rows);
    }
    merge_part();
    for (Index t = 0; t < x.tokens(); ++t) {
      const OnlineSoftmax<Scalar>& row = rows[static_cast<std::size_t>(t)];
      if (row.empty) throw_fully_masked(t);
      o.row(t).segment(h * dv, dv) = row.values.transpose() / row.sum;
    }
  }
  return o;
}

}  // namespace detail

/// Online softmax over `tile` keys at a time, the last tile possibly shorter (EQ-14). Throws Error for tile <
/// 1, and as attention_probabilities does.
template <class Scalar>
[[nodiscard]] Matrix<Scalar> softmax_attention_online(const AttentionInputs<Scalar>& x, Index tile) {
  return detail::tiled_attention(x, tile, false);
}

/// Every tile of keys by itself, then merged: the split over keys that decode kernels use (EQ-14). Throws
/// Error as softmax_attention_online does.
template <class Scalar>
[[nodiscard]] Matrix<Scalar> softmax_attention_merged(const AttentionInputs<Scalar>& x, Index tile) {
  return detail::tiled_attention(x, tile, true);
}

}  // namespace samestate
