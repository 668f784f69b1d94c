#pragma once

#include <vector>

#include "harness/cases/keys.h"
#include "harness/run/kernel_table.h"

namespace samestate {

/// Cases in which everything is ordinary at once, drawn from what callers do: a few sequences, several heads in groups, widths of
/// tiles or of a public model, whole chunks or one token behind a cache, settings either way. A fault that hangs on four or five
/// such things is in no pair or triple of unusual ones. The same cases for a kernel's name always; `start`: start_of the
/// kernel. None over ranks.
[[nodiscard]] std::vector<Case> typical_calls(const KernelRow& kernel, const Case& start);

/// A token of each of two sequences at the widths of each public model, and that with each setting the other way: code of its own,
/// where a kernel branches on a setting. Of counts (heads, slots) fewer where those cost too much. None of the family, which has served_calls.
[[nodiscard]] std::vector<Case> calls_of_one_token(const KernelRow& kernel, const Case& start);

}  // namespace samestate
