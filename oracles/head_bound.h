#pragma once

#include "oracles/judge.h"

namespace samestate {

/// What the RMS of the rows' errors of a head may be (G2 of BOUNDS 7), as judge_head holds it; infinite where the policy has
/// no such gate.
[[nodiscard]] double head_bound(const HeadOracle& oracle);

}  // namespace samestate
