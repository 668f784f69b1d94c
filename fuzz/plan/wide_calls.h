#pragma once

#include <vector>

#include "harness/run/kernel_table.h"

namespace samestate {

/// `c` with at most `most` of each size, nor less than two where the row starts with more: a norm of one element is its sign, and
/// a softmax of one key is 1. Where sizes that hang together may not go with each other so, those of `start`; within the
/// kernel's limits.
[[nodiscard]] Case few_of_each_size(const KernelRow& kernel, const Case& start, Case c, Index most = 3);

/// Each size that may be as large as a model's width, at 64, 128 and 256 behind several tiles of tokens, all other sizes few: what
/// only the second tile of one width does there. Of two sequences, or one, or one and a single
/// one of each size, where that is too much work. None of the family, whose calls say theirs (family_calls), nor over ranks.
[[nodiscard]] std::vector<Case> wide_calls(const KernelRow& kernel, const Case& start);

}  // namespace samestate
