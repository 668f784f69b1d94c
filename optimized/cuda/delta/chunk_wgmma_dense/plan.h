#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

#include "optimized/cuda/delta/chunk_dense_table.h"
#include "optimized/cuda/delta/chunk_wgmma_dense/fused.cuh"
#include "optimized/cuda/delta/chunk_wgmma_dense/split.cuh"

/// The host side of the prefill kernels; it needs no device.
namespace samestate::cuda {

static_assert(kPrefillKeys == kFusedKeys, "the table states what the kernels take");

/// The time that S of a chunk costs a block, relative to the rest of its work, without the delta rule, by
/// number of segments: the more blocks fetch at once, the higher it is (docs/kernels.md, segments).
inline constexpr double kAbsorbed[kMostSegments + 1] = {1.0, 1.0, 0.62, 0.55, 0.45};

/// The start positions of `segments` blocks that end at the same time: each carries S through the tokens that
/// the blocks before it turn into O.
inline void share_out(Prefill& c, int segments) {
  const double absorbed = kAbsorbed[segments];
  c.segments = segments;
  double start = 0.0;
  double part = 1.0;
  double sum = 0.0;
  for (int i = 0; i < segments; ++i, part *= 1.0 - absorbed) sum += part;
  part = 1.0 / sum;
  for (int i = 0; i < segments; ++i, part *= 1.0 - absorbed) {
    c.cuts[i] = static_cast<int>(start * 65536.0);
    start += part;
  }
}

/// Sequences by decreasing length, so that no long one starts when the others have ended.
[[nodiscard]] inline std::vector<int> longest_first(std::span<const std::int64_t> cu_seqlens) {
  std::vector<int> order(cu_seqlens.empty() ? 0 : cu_seqlens.size() - 1);
  std::iota(order.begin(), order.end(), 0);
  const auto tokens = [&](int n) {
    return cu_seqlens[static_cast<std::size_t>(n) + 1] - cu_seqlens[static_cast<std::size_t>(n)];
  };
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return tokens(a) > tokens(b); });
  return order;
}

/// In the grid of the split form, the blocks of as many pairs as fit on the device's multiprocessors at once
/// are adjacent.
[[nodiscard]] inline Prefill plan_prefill(const Parameters<Bf16>& p, int multiprocessors) {
  Prefill c;
  c.p = p;
  c.bulk = p.dk % 8 == 0 && p.dv % 8 == 0 && p.chunk == kChunk;
  c.group = std::max(1, multiprocessors / (kHelpers + c.value_tiles(kTileColumns)));
  c.group = static_cast<int>(std::min<std::int64_t>(c.group, std::max<std::int64_t>(c.items(), 1)));
  const std::int64_t blocks = std::max<std::int64_t>(c.items() * c.value_tiles(kTileColumns), 1);
  // In place, a segment that ends would overwrite the state that another segment has yet to load.
  const bool in_place = p.initial_state && p.initial_state == p.final_state;
  share_out(c, in_place
                   ? 1
                   : static_cast<int>(std::clamp<std::int64_t>(multiprocessors / blocks, 1, kMostSegments)));
  return c;
}

}  // namespace samestate::cuda
