#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

/// A sample's rounding is a random function of the value (bounds_operators.md 2); these functions draw its
/// numbers.
namespace samestate {

/// Uniform in (-1, 1), odd, and the same for equal leading bits of the mantissa whatever the exponent. A
/// sample therefore rounds equal values alike and keeps the symmetries of rounding to nearest.
[[nodiscard]] inline double random_function(double x, std::uint64_t salt, int leading_bits = 36) {
  const auto bits = std::bit_cast<std::uint64_t>(x);
  const std::uint64_t last = std::uint64_t{1} << static_cast<unsigned>(52 - leading_bits);
  std::uint64_t h = ((bits + last / 2) & 0x000FFFFFFFFFFFFFU & ~(last - 1)) ^ salt;
  h *= 0x9E3779B97F4A7C15U;
  h ^= h >> 32U;
  h *= 0xBF58476D1CE4E5B9U;
  h ^= h >> 29U;
  const double draw = static_cast<double>(h >> 11U) * 0x1p-52 - 1.0;
  return std::signbit(x) ? -draw : draw;
}

/// The same, approximately normal with the same variance, 1/3: the sum of twelve uniform numbers of 13 bits,
/// which ends at six deviations, whereas a uniform one ends at 1.7.
[[nodiscard]] inline double normal_function(double x, std::uint64_t salt) {
  double sum = 0.0;
  for (std::uint64_t i = 0; i < 3; ++i) {
    const double draw = random_function(std::abs(x), salt + i * 0xD1B54A32D192ED03U);
    auto bits = static_cast<std::uint64_t>((draw + 1.0) * 0x1p52);
    for (int j = 0; j < 4; ++j, bits >>= 13U) sum += static_cast<double>(bits & 0x1FFFU) - 4095.5;
  }
  return std::copysign(1.0, x) * sum * (0x1p-12 / 3.4641016151377544);
}

}  // namespace samestate
