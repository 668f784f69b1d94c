#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

#include "optimized/cuda/units/intrinsics.cuh"

/// Converts values on the host to and from the operand formats.
namespace samestate::cuda {

/// A value in the operand format, rounded to nearest even (inputs are already representable there), and the
/// inverse.
template <class Operand>
[[nodiscard]] Operand stored(float x) {
  if constexpr (std::is_same_v<Operand, float>) {
    return x;
  } else {
    const auto bits = std::bit_cast<std::uint32_t>(x);
    if ((bits & 0x7fffffffU) > 0x7f800000U) return {0x7fff};
    return {static_cast<std::uint16_t>((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16)};
  }
}
[[nodiscard]] inline float loaded(float x) { return x; }
[[nodiscard]] inline float loaded(Bf16 x) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(x.bits) << 16);
}

}  // namespace samestate::cuda
