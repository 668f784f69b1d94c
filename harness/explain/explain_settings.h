#pragma once

#include <string>
#include <vector>

#include "harness/run/kernel_table.h"

namespace samestate {

/// The settings of a failing case (Key::setting: where tensors lie, what becomes of the final state, which map of heads,
/// ..) without which, one at a time, it passes: "only with final=in_place: passes with final=apart". The case is run once
/// for each that is not at its default. Kernels run in this process.
[[nodiscard]] std::vector<std::string> settings_that_matter(const Case& failing, const KernelTable& table);

}  // namespace samestate
