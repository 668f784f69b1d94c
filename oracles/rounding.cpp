#include "oracles/rounding.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace samestate {
namespace {

/// A binary format: `precision` significant bits, exponents (of the leading bit) from `lowest` to `highest`.
struct Layout {
  int precision;
  int lowest;
  int highest;
};

constexpr Layout layout_of(Format format) {
  switch (format) {
    case Format::fp32:
      return {24, -126, 127};
    case Format::tf32:
    case Format::tf32_truncated:
      return {11, -126, 127};
    case Format::bf16:
      return {8, -126, 127};
    case Format::fp16:
      return {11, -14, 15};
    case Format::fp64:
    case Format::none:
      break;
  }
  return {53, -1022, 1023};
}

/// No operand of a kernel is wider than fp32: rounding to these leaves every value as it is.
constexpr bool identity(Format format) { return format == Format::none || format == Format::fp64; }

}  // namespace

double unit_roundoff(Format format) {
  if (format == Format::none) return 0.0;
  const int half = format == Format::tf32_truncated ? 0 : 1;
  return std::ldexp(1.0, 1 - layout_of(format).precision - half);
}

double subnormal_error(Format format) {
  if (identity(format)) return 0.0;
  const Layout layout = layout_of(format);
  const int half = format == Format::tf32_truncated ? 0 : 1;
  return std::ldexp(1.0, layout.lowest - (layout.precision - 1) - half);
}

double largest_finite(Format format) {
  if (format == Format::none) return std::numeric_limits<double>::infinity();
  const Layout layout = layout_of(format);
  return std::ldexp(2.0 - std::ldexp(1.0, 1 - layout.precision), layout.highest);
}

double round_to(double x, Format format) {
  if (identity(format) || x == 0.0 || !std::isfinite(x)) return x;
  const Layout layout = layout_of(format);
  // x = m 2^spacing with spacing the exponent of the last kept bit; scaling by a power of two is exact
  // because spacing >= -149 and |m| < 2^53 (subnormal doubles round to zero whatever the scaling does to
  // them).
  const int spacing = std::max(std::ilogb(x), layout.lowest) - (layout.precision - 1);
  const double scaled = std::ldexp(x, -spacing);
  const double kept = format == Format::tf32_truncated ? std::trunc(scaled) : std::nearbyint(scaled);
  const double rounded = std::ldexp(kept, spacing);
  if (std::fabs(rounded) >= std::ldexp(2.0, layout.highest)) {
    return std::copysign(std::numeric_limits<double>::infinity(), x);
  }
  return rounded == 0.0 ? std::copysign(0.0, x) : rounded;
}

float round_to(float x, Format format) {
  if (format == Format::fp32) return x;
  return static_cast<float>(round_to(static_cast<double>(x), format));
}

double half_ulp(double x, Format format) {
  if (format == Format::none) return 0.0;
  if (!std::isfinite(x)) return std::fabs(x);
  const int exponent = std::ilogb(std::max(std::fabs(x), 1e-300));
  return std::max(std::ldexp(unit_roundoff(format), exponent), subnormal_error(format));
}

}  // namespace samestate
