#pragma once

#include <vector>

#include "fuzz/plan/factors.h"

namespace samestate {

/// Binary versions of a kernel's factors, for coverage of triples: the default against everything else; for
/// sizes, at most one tile against larger; for counts, at most the starting value against larger. Forms keep
/// their levels; data and laws, of which there are many, are left out. Triples of these are the conditions
/// that a kernel's branches combine (several sequences, long ones, more than one key head), and they are few
/// enough for a plan to contain every one that it can afford.
[[nodiscard]] std::vector<Factor> coarse_factors_of(const KernelRow& kernel);

}  // namespace samestate
