#pragma once

#include <algorithm>
#include <cstdint>

#include "optimized/cuda/units/intrinsics.cuh"

/// The largest and the least number of a warp, in every lane, and numbers in the order of floating-point values.
namespace samestate::cuda {

#ifdef __CUDACC__
SAMESTATE_DEVICE std::uint32_t warp_largest(std::uint32_t x) { return __reduce_max_sync(0xffffffffU, x); }
SAMESTATE_DEVICE std::uint32_t warp_least(std::uint32_t x) { return __reduce_min_sync(0xffffffffU, x); }
#else
inline std::uint32_t warp_largest(std::uint32_t x) {
  std::uint64_t most = 0;
  for (const auto& words : emulation::exchange({x})) most = std::max(most, words[0]);
  return static_cast<std::uint32_t>(most);
}
inline std::uint32_t warp_least(std::uint32_t x) { return ~warp_largest(~x); }
#endif

/// A number that is larger where x is, the same for both zeros, never 0.
SAMESTATE_DEVICE std::uint32_t order_of(float x) {
  const std::uint32_t bits = bits_of(x + 0.0F);  // -0 + 0 = 0
  const std::uint32_t order = (bits >> 31) != 0 ? ~bits : bits | 0x80000000U;
  return order == 0 ? 1 : order;
}
SAMESTATE_DEVICE float value_of(std::uint32_t order) {
  return float_of((order >> 31) != 0 ? order & 0x7fffffffU : ~order);
}

}  // namespace samestate::cuda
