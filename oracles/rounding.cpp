#include "oracles/rounding.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
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

/// 2^n, n in the range of normal doubles: what the library does for every n takes ten times as long, and drawn roundings
/// ask for little else.
constexpr double power(int n) { return std::bit_cast<double>(static_cast<std::uint64_t>(n + 1023) << 52U); }

/// Exponent of the leading bit of a normal double.
constexpr int exponent_of(double x) {
  return static_cast<int>(std::bit_cast<std::uint64_t>(x) >> 52U & 0x7FFU) - 1023;
}

constexpr int truncates(Format format) { return format == Format::tf32_truncated ? 1 : 0; }

/// n where unit_roundoff is 2^-n.
constexpr int unit_exponent(Format format) { return layout_of(format).precision - truncates(format); }

/// Below the normal range of the format, where its numbers are the multiples of 2^(lowest - precision + 1).
double round_subnormal(double x, Format format) {
  const Layout layout = layout_of(format);
  const double spacing = power(layout.lowest - (layout.precision - 1));
  const double scaled =
      x / spacing;  // exact: a power of two, and doubles below 2^-1022 round to zero either way
  const double kept = truncates(format) ? std::trunc(scaled) : std::nearbyint(scaled);
  return std::copysign(kept * spacing, x);
}

}  // namespace

double unit_roundoff(Format format) { return format == Format::none ? 0.0 : power(-unit_exponent(format)); }

double subnormal_error(Format format) {
  if (identity(format)) return 0.0;
  const Layout layout = layout_of(format);
  return power(layout.lowest - (layout.precision - 1) - 1 + truncates(format));
}

double largest_finite(Format format) {
  if (format == Format::none) return std::numeric_limits<double>::infinity();
  const Layout layout = layout_of(format);
  return power(layout.highest) * (2.0 - power(1 - layout.precision));
}

double round_to(double x, Format format) {
  if (identity(format) || x == 0.0 || !std::isfinite(x)) return x;
  const Layout layout = layout_of(format);
  if (exponent_of(x) < layout.lowest) return round_subnormal(x, format);
  // A carry out of the kept bits goes into the exponent, which is what it should do.
  const auto bits = std::bit_cast<std::uint64_t>(x);
  const auto dropped = static_cast<unsigned>(53 - layout.precision);
  const std::uint64_t last = std::uint64_t{1} << dropped;
  const std::uint64_t half = truncates(format) ? 0 : last / 2 - 1 + (bits >> dropped & 1U);
  const auto rounded = std::bit_cast<double>((bits + half) & ~(last - 1));
  if (exponent_of(rounded) > layout.highest) return std::copysign(std::numeric_limits<double>::infinity(), x);
  return rounded;
}

float round_to(float x, Format format) {
  if (format == Format::fp32) return x;
  return static_cast<float>(round_to(static_cast<double>(x), format));
}

double half_ulp(double x, Format format) {
  if (format == Format::none) return 0.0;
  if (!std::isfinite(x)) return std::fabs(x);
  const int at = exponent_of(std::max(std::fabs(x), 1e-290)) - unit_exponent(format);
  return std::max(power(at), subnormal_error(format));
}

}  // namespace samestate
