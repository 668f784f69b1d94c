#pragma once

#include <cstdint>

#include "optimized/cuda/units/intrinsics.cuh"

/// A factor of fp32 for a unit that multiplies bf16.
namespace samestate::cuda {

inline constexpr int kParts = 3;  ///< numbers of bf16 whose sum is one of fp32

/// The parts of two neighbours.
SAMESTATE_DEVICE void split_pair(float x, float y, std::uint32_t (&parts)[kParts]) {
  SAMESTATE_UNROLL
  for (std::uint32_t& part : parts) {
    part = narrow_pair(x, y);
    x -= float_of(part << 16);
    y -= float_of(part & 0xffff0000U);
  }
}

}  // namespace samestate::cuda
