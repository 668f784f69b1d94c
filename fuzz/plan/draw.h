#pragma once

#include "fuzz/plan/dice.h"
#include "fuzz/plan/factors.h"

namespace samestate {

/// A case of one kernel with each factor drawn (factors.h): contract, regime, law, form, keys, sizes at and
/// near boundaries, tokens at the chunk's edges. Its work is at most `most` times the unit of System::work.
/// The line names no kernel, and its seed is 0.
[[nodiscard]] Case draw_case(const KernelRow& kernel, const std::vector<Factor>& factors, const Dice& dice,
                             double most = 1.0);

}  // namespace samestate
