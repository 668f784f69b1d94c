#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "reference/contract.h"

/// The formats as the oracles see them: constants and one rounding. Kernels round with code of their own
/// (optimized/cpu/rounding.h), so a mistake in one does not agree with a mistake in the other.
namespace samestate {

namespace detail {

/// A binary format: `precision` significant bits, and exponents (of the leading bit) from `lowest` to
/// `highest`.
struct FormatLayout {
  int precision;
  int lowest;
  int highest;
};

constexpr FormatLayout layout_of(Format format) {
  switch (format) {
    case Format::fp32:
      return {24, -126, 127};
    case Format::tf32:
    case Format::tf32_truncated:
      return {11, -126, 127};
    case Format::tf32x3:
      return {20, -126, 127};
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

/// No operand of a kernel is wider than fp32, so rounding to these formats leaves every value unchanged.
constexpr bool identity(Format format) { return format == Format::none || format == Format::fp64; }

/// 2^n for n in the range of normal doubles. The library function, which works for every n, takes ten times
/// as long, and drawn roundings need little else.
constexpr double power(int n) { return std::bit_cast<double>(static_cast<std::uint64_t>(n + 1023) << 52U); }

/// Exponent of the leading bit of a normal double.
constexpr int exponent_of(double x) {
  return static_cast<int>(std::bit_cast<std::uint64_t>(x) >> 52U & 0x7FFU) - 1023;
}

constexpr int truncates(Format format) { return format == Format::tf32_truncated ? 1 : 0; }

/// n such that unit_roundoff is 2^-n.
constexpr int unit_exponent(Format format) { return layout_of(format).precision - truncates(format); }

/// Rounds below the normal range of the format, where its numbers are the multiples of 2^(lowest - precision
/// + 1).
[[nodiscard]] double round_subnormal(double x, Format format);

}  // namespace detail

/// Largest relative error of one rounding: 2^-53 fp64, 2^-24 fp32, 2^-11 tf32 and fp16, 2^-10 tf32_truncated
/// (it drops bits), 2^-8 bf16, 0 none; 2^-20 for an operand of tf32x3, including its half of the part of the
/// product that is left out (BOUNDS 5.5).
[[nodiscard]] constexpr double unit_roundoff(Format format) {
  return format == Format::none ? 0.0 : detail::power(-detail::unit_exponent(format));
}

/// Largest absolute error of one rounding below the normal range: half the spacing of the subnormals, the
/// whole spacing for tf32_truncated; 0 for fp64 and none (never reached). BOUNDS 1, `eta`.
[[nodiscard]] constexpr double subnormal_error(Format format) {
  if (detail::identity(format)) return 0.0;
  const detail::FormatLayout layout = detail::layout_of(format);
  return detail::power(layout.lowest - (layout.precision - 1) - 1 + detail::truncates(format));
}

/// Largest finite value; infinity for none.
[[nodiscard]] constexpr double largest_finite(Format format) {
  if (format == Format::none) return std::numeric_limits<double>::infinity();
  const detail::FormatLayout layout = detail::layout_of(format);
  return detail::power(layout.highest) * (2.0 - detail::power(1 - layout.precision));
}

/// `x` to the nearest value of `format`, ties to even, in one step from double; tf32_truncated drops the low
/// bits instead. Keeps subnormals and the sign of zero; beyond the range gives infinity (for tf32_truncated
/// from 2^128, where its fp32 operand no longer exists). fp64 and none return x; NaN stays NaN.
[[nodiscard]] inline double round_to(double x, Format format) {
  if (detail::identity(format) || x == 0.0 || !std::isfinite(x)) return x;
  const detail::FormatLayout layout = detail::layout_of(format);
  if (detail::exponent_of(x) < layout.lowest) return detail::round_subnormal(x, format);
  // A carry out of the kept bits goes into the exponent, as it should.
  const auto bits = std::bit_cast<std::uint64_t>(x);
  const auto dropped = static_cast<unsigned>(53 - layout.precision);
  const std::uint64_t last = std::uint64_t{1} << dropped;
  const std::uint64_t half = detail::truncates(format) ? 0 : last / 2 - 1 + (bits >> dropped & 1U);
  const auto rounded = std::bit_cast<double>((bits + half) & ~(last - 1));
  if (detail::exponent_of(rounded) > layout.highest)
    return std::copysign(std::numeric_limits<double>::infinity(), x);
  return rounded;
}

/// The same for fp32 data: fp32, fp64 and none return x.
[[nodiscard]] float round_to(float x, Format format);

/// The format whose numbers an operand of `format` takes unchanged: tf32x3 leaves out products of second
/// parts, and only tf32 numbers have no second part.
constexpr Format whole_in(Format format) { return format == Format::tf32x3 ? Format::tf32 : format; }

/// Half the spacing of `format` at |x|, subnormals included: the hard bound on rounding a value of magnitude
/// up to |x| (for tf32_truncated the whole spacing). 0 for none; infinity or NaN if x is. BOUNDS 7,
/// `half_ulp_out`.
[[nodiscard]] inline double half_ulp(double x, Format format) {
  if (format == Format::none) return 0.0;
  if (!std::isfinite(x)) return std::fabs(x);
  const int at = detail::exponent_of(std::max(std::fabs(x), 1e-290)) - detail::unit_exponent(format);
  return std::max(detail::power(at), subnormal_error(format));
}

}  // namespace samestate
