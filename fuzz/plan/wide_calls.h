#pragma once

#include <vector>

#include "harness/run/kernel_table.h"

namespace samestate {

/// `c` with at most `most` of each size, nor less than two where the row starts with more: a norm of one element is its sign, and
/// a softmax of one key is 1. Where sizes that hang together may not go with each other so, those of `start`; within the
/// kernel's limits.
[[nodiscard]] Case few_of_each_size(const KernelRow& kernel, const Case& start, Case c, Index most = 3);

/// Each size that may be as large as a model's width, at 64, 128 and 256 behind several tiles of tokens, all other sizes few: of two
/// sequences; of one where that takes more than `most` of System::work; of one and a single one of each size where that does too.
[[nodiscard]] std::vector<Case> wide_calls(const KernelRow& kernel, const Case& start, double most);

}  // namespace samestate
