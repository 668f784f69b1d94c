#pragma once

#include <cstdint>
#include <vector>

#include "harness/cases/case_line.h"
#include "optimized/operator_kernel.h"

namespace samestate {

/// Appends the edge cases of one kernel: T in {0, 1, 2, C - 1, C, C + 1}, every contract, every regime, each
/// size at its least and at an odd value, a batch, decode after no, one and many tokens. `is_default`: the
/// case line need not name the kernel.
void plan_operator_edges(const OperatorKernel& kernel, bool is_default, std::vector<Case>& out);

/// Appends seeded case number `index`. Sizes are drawn until they fit together and the work is moderate.
void plan_operator_seeded(const OperatorKernel& kernel, bool is_default, std::uint64_t seed,
                          std::int64_t index, std::vector<Case>& out);

}  // namespace samestate
