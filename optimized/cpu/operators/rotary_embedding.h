#pragma once

#include <vector>

#include "optimized/operator_kernel.h"

namespace samestate::cpu {

/// Rotation of all heads of a token with tables as wide as a head: y = x cos + partner(x) sin.
[[nodiscard]] Outcome rotary_embedding_full_width(const OperatorArguments& call, const Contract& contract);

/// The tables of one token over the columns of a head. Columns that are not rotated have cosine 1 and sine 0.
class RotaryRow {
 public:
  RotaryRow(std::int64_t width, std::int64_t pairs, bool interleaved);
  /// cosine, sine: [pairs] of the token.
  void set(const float* cosine, const float* sine);
  /// y <- x rotated, for one head. x and y must not overlap.
  void turn(const float* x, float* y) const;

 private:
  std::vector<std::int64_t> partner_;  ///< for each column; a column that is not rotated is its own partner
  std::vector<float> cosine_, sine_;
  std::int64_t pairs_;
  std::int64_t step_;      ///< from a pair's first column to the next pair's
  std::int64_t distance_;  ///< from a pair's first column to its second
};

}  // namespace samestate::cpu
