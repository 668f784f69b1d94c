#pragma once

#include <vector>

#include "harness/run/kernel_table.h"

namespace samestate {

/// `c` with at most `most` of each size, but at least two if the row starts with more: a norm of one element
/// is its sign, and a softmax of one key is 1. Sizes that depend on each other and cannot be combined in that
/// way keep the values of `start`; within the kernel's limits.
[[nodiscard]] Case few_of_each_size(const KernelRow& kernel, const Case& start, Case c, Index most = 3);

/// Each size that may be as large as a model's width, at 64, 128 and 256, after several tiles of tokens, with
/// all other sizes small: with two sequences; with one if that takes more than `most` of System::work; and
/// with one sequence and one of each size if even that does.
[[nodiscard]] std::vector<Case> wide_calls(const KernelRow& kernel, const Case& start, double most);

}  // namespace samestate
