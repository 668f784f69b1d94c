#pragma once

#include <cmath>
#include <cstdint>

#include "optimized/cpu/backward/row_sums.h"
#include "optimized/cpu/l2norm.h"
#include "optimized/cpu/rounding.h"

namespace samestate::cpu {

/// dy <- the gradient of x for y = x r, r = (sum x^2 + 1e-6)^-1/2: r (dy - y <y, dy>). With y, whose length is below 1, in
/// place of x / |x| it is exact for every epsilon. x and dy: [width] with zeros up to a multiple of kLanes; x becomes y. The
/// formats are those that y and dy are rounded to.
inline void l2_normalise_back(float* x, float* dy, std::int64_t width, Format y_format, Format dy_format) {
  const std::int64_t padded = round_up(width, kLanes);
  const float factor = l2_factor(x, width);
  for (std::int64_t i = 0; i < width; ++i) x[i] *= factor;
  round_values(x, x, padded, y_format);
  round_values(dy, dy, padded, dy_format);
  const float along = dot_rows(x, dy, padded);
  for (std::int64_t i = 0; i < width; ++i) dy[i] = factor * std::fma(-along, x[i], dy[i]);
}

}  // namespace samestate::cpu
