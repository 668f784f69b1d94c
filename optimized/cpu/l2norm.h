#pragma once

#include <cmath>
#include <cstdint>

#include "optimized/cpu/lanes.h"

namespace samestate::cpu {

/// (sum x^2 + 1e-6)^(-1/2) in fp32 (EQUATIONS 5.2, GDN-32), with eight partial sums.
[[nodiscard]] inline float l2_factor(const float* x, std::int64_t width) {
  float partial[kLanes] = {};
  for (std::int64_t i = 0; i < width; ++i) partial[i % kLanes] = std::fma(x[i], x[i], partial[i % kLanes]);
  float sum = 0.0F;
  for (const float part : partial) sum += part;
  return 1.0F / std::sqrt(sum + 1e-6F);
}

/// x <- x (sum x^2 + 1e-6)^(-1/2). Zero stays exactly zero.
inline void l2_normalise(float* x, std::int64_t width) {
  const float factor = l2_factor(x, width);
  for (std::int64_t i = 0; i < width; ++i) x[i] *= factor;
}

}  // namespace samestate::cpu
