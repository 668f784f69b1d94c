#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "optimized/cpu/lanes.h"

/// The backward pass of one row of an RMS norm, in fp32.
namespace samestate::cpu {

/// The sum of x[j] y[j], in one partial sum for each lane.
[[nodiscard]] inline float inner_product(const float* x, const float* y, std::int64_t count) {
  float partial[kLanes] = {};
  for (std::int64_t j = 0; j < count; ++j) partial[j % kLanes] += x[j] * y[j];
  float sum = 0.0F;
  for (const float part : partial) sum += part;
  return sum;
}

/// A thread keeps these values of one row, in fp32.
struct ReverseNormRow {
  explicit ReverseNormRow(std::int64_t width)
      : x(size(width)), n(size(width)), dn(size(width)), dx(size(width)) {}
  static std::size_t size(std::int64_t width) { return static_cast<std::size_t>(width); }
  std::vector<float> x;   ///< the row that is normalised
  std::vector<float> n;   ///< its norm
  std::vector<float> dn;  ///< the cotangent of the norm, behind the weight
  std::vector<float> dx;  ///< the gradient of x
};

/// From x and dn of the row, n and dx; the mean is a sum over `divisor`.
inline void reverse_norm(ReverseNormRow& row, std::int64_t width, float divisor) {
  const float inverse = 1.0F / std::sqrt(inner_product(row.x.data(), row.x.data(), width) / divisor + 1e-6F);
  for (std::int64_t j = 0; j < width; ++j)
    row.n[ReverseNormRow::size(j)] = row.x[ReverseNormRow::size(j)] * inverse;
  const float along = inner_product(row.n.data(), row.dn.data(), width) / divisor;
  for (std::int64_t j = 0; j < width; ++j)
    row.dx[ReverseNormRow::size(j)] =
        inverse * (row.dn[ReverseNormRow::size(j)] - along * row.n[ReverseNormRow::size(j)]);
}

}  // namespace samestate::cpu
