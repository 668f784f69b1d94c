#pragma once

#include <vector>

#include "harness/cases/case_line.h"
#include "harness/run/kernel_table.h"

namespace samestate {

/// The edge cases of one kernel, each once: what follows from the rows of its system and of the keys (sizes at their least,
/// odd and beyond tiles, calls, settings, chunks, regimes, laws, shapes of models), under each contract or under two.
[[nodiscard]] std::vector<Case> edges_of(const KernelTable& table, const KernelRow& kernel);

}  // namespace samestate
