#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "reference/error.h"
#include "reference/sequence.h"

namespace samestate {

/// A layer split at the token positions `cuts` (not decreasing, in [0, T]), with the cache carried from part
/// to part (EQ-18). Cuts at all of 1, 2, .. T - 1 are decode. hidden: [T, D]; `layer` evaluates a part:
/// (hidden, cache) -> Output. Returns out, [T, width], and the last cache; the other members stay empty.
/// Throws Error for cuts out of order.
template <class Output, class Scalar, class Cache, class Layer>
[[nodiscard]] Output resumed_layer(const Matrix<Scalar>& hidden, Index width, Cache cache,
                                   const std::vector<Index>& cuts, const Layer& layer) {
  Output whole;
  whole.out.resize(hidden.rows(), width);
  Index begin = 0;
  for (std::size_t i = 0; i <= cuts.size(); ++i) {
    const Index end = i < cuts.size() ? cuts[i] : hidden.rows();
    if (end < begin || end > hidden.rows()) {
      throw Error("cut " + std::to_string(end) + ": cuts must not decrease and lie in 0.." +
                  std::to_string(hidden.rows()));
    }
    const Matrix<Scalar> part = hidden.middleRows(begin, end - begin);
    Output done = layer(part, cache);
    whole.out.middleRows(begin, end - begin) = done.out;
    cache = std::move(done.cache);
    begin = end;
  }
  whole.cache = std::move(cache);
  return whole;
}

}  // namespace samestate
