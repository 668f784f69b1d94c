#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "reference/contract.h"

/// Rounding of fp32 values to the storage and operand formats of a contract (BOUNDS 1), to nearest even
/// unless the format is a truncated one. This code is deliberately separate from the oracles' rounding.
namespace samestate::cpu {

/// True if rounding to `format` leaves every fp32 value unchanged.
[[nodiscard]] constexpr bool keeps_fp32(Format format) {
  return format == Format::none || format == Format::fp32 || format == Format::fp64;
}

/// Rounds away the low `dropped` bits of the significand, to nearest even; Inf and NaN are unchanged.
template <int dropped>
[[nodiscard]] inline float drop_bits(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  constexpr std::uint32_t mask = ~((1U << dropped) - 1U);
  const std::uint32_t even = (bits >> dropped) & 1U;
  const std::uint32_t rounded = (bits + even + ((1U << (dropped - 1)) - 1U)) & mask;
  return (bits & 0x7f800000U) == 0x7f800000U ? x : std::bit_cast<float>(rounded);
}

[[nodiscard]] inline float to_bf16(float x) { return drop_bits<16>(x); }

[[nodiscard]] inline float to_tf32(float x) { return drop_bits<13>(x); }

/// Rounds to nearest with ties away from zero, by one integer addition, as fused kernels round the operands
/// of their merges.
[[nodiscard]] inline float to_tf32_away(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  return (bits & 0x7f800000U) == 0x7f800000U ? x : std::bit_cast<float>((bits + 0x1000U) & 0xffffe000U);
}

[[nodiscard]] inline float to_tf32_truncated(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  return (bits & 0x7f800000U) == 0x7f800000U ? x : std::bit_cast<float>(bits & 0xffffe000U);
}

/// fp16 has 11 significant bits down to 2^-14, a fixed step of 2^-24 below, and overflows to Inf from 65520.
/// The step 2^-24 is the unit in the last place of [0.5, 1): adding and subtracting 0.5 rounds to it.
[[nodiscard]] inline float to_fp16(float x) {
  const float magnitude = std::fabs(x);
  const float subnormal = (magnitude + 0.5F) - 0.5F;
  const float normal = drop_bits<13>(magnitude);
  const float finite = magnitude < 0x1p-14F ? subnormal : normal;
  const float rounded = finite > 65504.0F ? HUGE_VALF : finite;
  return std::copysign(rounded, x);
}

/// Rounds x[0..count) into y[0..count); x and y may be the same memory.
inline void round_values(const float* x, float* y, std::int64_t count, Format format) {
  const auto apply = [&](auto round) {
    for (std::int64_t i = 0; i < count; ++i) y[i] = round(x[i]);
  };
  switch (format) {
    case Format::bf16:
      return apply(to_bf16);
    case Format::fp16:
      return apply(to_fp16);
    case Format::tf32:
      return apply(to_tf32);
    case Format::tf32_truncated:
      return apply(to_tf32_truncated);
    case Format::tf32x3:
      return apply([](float value) { return to_tf32(value) + to_tf32(value - to_tf32(value)); });
    case Format::none:
    case Format::fp32:
    case Format::fp64:
      break;
  }
  if (x != y) apply([](float value) { return value; });
}

/// exp(x) for x <= 0: expf within one ulp, or 2^(x log2 e) with the product rounded to fp32 (BOUNDS 1, field
/// ex).
inline constexpr float kLog2e = 1.4426950408889634F;
[[nodiscard]] inline float exponential(float x, Exponential kind) {
  return kind == Exponential::exact ? std::exp(x) : std::exp2(x * kLog2e);
}

}  // namespace samestate::cpu
