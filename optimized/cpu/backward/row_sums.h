#pragma once

#include <cmath>
#include <cstdint>

#include "optimized/cpu/block.h"
#include "optimized/cpu/lanes.h"

/// Sums along rows of fp32 values, whose padded width is a multiple of kLanes.
namespace samestate::cpu {

/// to <- to + factor x, fused.
inline void add_row(float factor, const float* x, float* to, std::int64_t width) {
  for (std::int64_t c = 0; c < width; ++c) to[c] = std::fma(factor, x[c], to[c]);
}

/// The sum of eight partial sums, in pairs.
[[nodiscard]] inline float sum_of_lanes(const Lanes& x) {
  return ((x[0] + x[4]) + (x[2] + x[6])) + ((x[1] + x[5]) + (x[3] + x[7]));
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
