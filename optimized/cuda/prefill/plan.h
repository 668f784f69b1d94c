#pragma once

#include <algorithm>
#include <cstdint>

#include "optimized/cuda/prefill/fused.cuh"
#include "optimized/cuda/prefill/split.cuh"
#include "optimized/cuda/prefill/table.h"

/// The host's half of the prefill kernels; needs no device.
namespace samestate::cuda {

static_assert(kPrefillKeys == kFusedKeys, "the table states what the kernels take");

/// The pairs whose blocks stand together in the split form's grid are as many as the device's multiprocessors hold at
/// once.
[[nodiscard]] inline Prefill plan_prefill(const Parameters<Bf16>& p, int multiprocessors) {
  Prefill c;
  c.p = p;
  c.bulk = p.dk % 8 == 0 && p.dv % 8 == 0 && p.chunk == kChunk;
  c.group = std::max(1, multiprocessors / (kHelpers + c.value_tiles(kTileColumns)));
  c.group = static_cast<int>(std::min<std::int64_t>(c.group, std::max<std::int64_t>(c.items(), 1)));
  return c;
}

}  // namespace samestate::cuda
