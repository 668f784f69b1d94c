#pragma once

#include <bit>
#include <cstdint>

#include "optimized/cuda/units/intrinsics.cuh"

/// Questions that a warp answers together.
namespace samestate::cuda {

#ifdef __CUDACC__
/// Bit l: whether lane l says so.
SAMESTATE_DEVICE std::uint32_t ballot(bool mine) { return __ballot_sync(0xffffffffU, mine); }
SAMESTATE_DEVICE int ones(std::uint32_t bits) { return __popc(bits); }
#else
inline std::uint32_t ballot(bool mine) {
  const auto& table = emulation::exchange({mine ? 1U : 0U});
  std::uint32_t bits = 0;
  for (std::size_t lane = 0; lane < 32; ++lane)
    bits |= table[lane][0] != 0 ? std::uint32_t{1} << lane : std::uint32_t{0};
  return bits;
}
inline int ones(std::uint32_t bits) { return std::popcount(bits); }
#endif

/// Returns how many of the bits below bit `at`, at < 32, are set.
SAMESTATE_DEVICE int ones_below(std::uint32_t bits, int at) {
  return ones(bits & ((std::uint32_t{1} << at) - 1U));
}

}  // namespace samestate::cuda
