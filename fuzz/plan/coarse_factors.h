#pragma once

#include <vector>

#include "fuzz/plan/factors.h"

namespace samestate {

/// The factors of a kernel's cases cut in two: as a case begins, and otherwise; of a size, up to a tile (of a count: up to the
/// start's) and beyond it. Forms keep their levels; data and laws, of which there are many, have none here. Triples of these are
/// what a kernel's branches ask for together (several sequences, long ones, more than one key head), and so few that a plan
/// has each that it can afford.
[[nodiscard]] std::vector<Factor> coarse_factors_of(const KernelRow& kernel);

}  // namespace samestate
