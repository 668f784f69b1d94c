#pragma once

#include <cmath>
#include <cstdint>

#include "optimized/cpu/block.h"
#include "optimized/cpu/lanes.h"

/// Sums along rows of fp32 values, whose padded width is a multiple of kLanes.
namespace samestate::cpu {

/// to <- factor x; `to` may be x.
inline void scale_row(float factor, const float* x, float* to, std::int64_t width) {
  for (std::int64_t c = 0; c < width; ++c) to[c] = factor * x[c];
}

/// to <- to + factor x, fused.
inline void add_row(float factor, const float* x, float* to, std::int64_t width) {
  Lanes scale;
  splat(scale, factor);
  for (std::int64_t c = 0; c < width; c += kLanes) {
    Lanes term;
    Lanes sum;
    load(term, x + c);
    load(sum, to + c);
    fuse(sum, scale, term);
    store(to + c, sum);
  }
}

/// The sum of eight partial sums, in pairs. With shuffles, since a loop that ends in single elements of a vector is not
/// compiled to vector instructions.
[[nodiscard]] inline float sum_of_lanes(const Lanes& x) {
  const Lanes halves = x + __builtin_shufflevector(x, x, 4, 5, 6, 7, 0, 1, 2, 3);
  const Lanes quarters = halves + __builtin_shufflevector(halves, halves, 2, 3, 0, 1, 6, 7, 4, 5);
  return quarters[0] + quarters[1];
}

/// sum x with eight partial sums.
[[nodiscard]] inline float sum_row(const float* x, std::int64_t width) {
  Lanes sum{};
  for (std::int64_t c = 0; c < width; c += kLanes) {
    Lanes next;
    load(next, x + c);
    sum += next;
  }
  return sum_of_lanes(sum);
}

/// sum x y with eight partial sums.
[[nodiscard]] inline float dot_rows(const float* x, const float* y, std::int64_t width) {
  Lanes sum{};
  for (std::int64_t c = 0; c < width; c += kLanes) {
    Lanes left;
    Lanes right;
    load(left, x + c);
    load(right, y + c);
    fuse(sum, left, right);
  }
  return sum_of_lanes(sum);
}

/// x <- x + y for two blocks of one size.
inline void add_block(const Block& y, Block& x) {
  for (std::int64_t i = 0; i < x.size(); ++i) x.values[i] += y.values[i];
}

}  // namespace samestate::cpu
