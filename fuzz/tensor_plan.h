#pragma once

#include <cstdint>
#include <vector>

#include "harness/run/kernel_table.h"

namespace samestate {

/// Appends the edge cases of one kernel of named tensors: T in {0, 1, 2, C - 1, C, C + 1}, every contract,
/// every regime, each size at its least and at an odd value, a batch, decode after no, one and many tokens,
/// and where the kernel takes them strided tensors. The lines name no kernel.
void plan_tensor_edges(const KernelRow& kernel, std::vector<Case>& out);

/// Appends seeded case number `index`. Sizes are drawn until they fit together and the work is moderate.
void plan_tensor_seeded(const KernelRow& kernel, std::uint64_t seed, std::int64_t index,
                        std::vector<Case>& out);

}  // namespace samestate
