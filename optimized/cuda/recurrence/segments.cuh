#pragma once

#include <algorithm>
#include <cstdint>

#include "optimized/cuda/units/intrinsics.cuh"

/// Sequences that give too few blocks are cut into segments of tokens: each leaves its own state, begun from zero; these are summed up
/// to the state before each; then all segments go their way at once.
namespace samestate::cuda {

struct Segments {
  std::int64_t tokens = 1;  ///< tokens of each; the last may have fewer
  std::int64_t count = 1;
};

[[nodiscard]] inline std::int64_t ceiling(std::int64_t n, std::int64_t by) { return (n + by - 1) / by; }

/// For `units` chains of which an H100 holds `resident` a multiprocessor, whatever the device: where segments begin decides the order
/// of sums, and every device is to give the same bits. They begin at a multiple of `tile`.
[[nodiscard]] inline Segments plan_segments(std::int64_t units, std::int64_t resident, std::int64_t tokens,
                                            std::int64_t tile) {
  constexpr std::int64_t kMultiprocessors = 132, kShortest = 64;
  const std::int64_t most = units > 0 ? std::min(kMultiprocessors * resident / units, tokens / kShortest) : 1;
  Segments of;
  of.tokens =
      ceiling(std::max<std::int64_t>(ceiling(tokens, std::max<std::int64_t>(most, 1)), 1), tile) * tile;
  of.count = std::max<std::int64_t>(ceiling(tokens, of.tokens), 1);
  return of;
}

/// Carries `state`, the state before the first of `count` segments, through them: at[n stride], which a
/// segment leaves by itself, becomes the state after it. Returns the last one. `decay(n)` is the factor of
/// the earlier state after segment n.
template <class Decay>
SAMESTATE_DEVICE float carry_state(float* at, std::int64_t stride, std::int64_t count, float state,
                                   Decay&& decay) {
  constexpr int kAhead = 8;
  for (std::int64_t first = 0; first < count; first += kAhead) {
    float own[kAhead];
    SAMESTATE_UNROLL
    for (int i = 0; i < kAhead; ++i) own[i] = first + i < count ? at[(first + i) * stride] : 0.0F;
    SAMESTATE_UNROLL
    for (int i = 0; i < kAhead; ++i) {
      if (first + i >= count) break;
      state = fused(decay(first + i), state, own[i]);
      at[(first + i) * stride] = state;
    }
  }
  return state;
}

}  // namespace samestate::cuda
