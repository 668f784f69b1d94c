#pragma once

#include "oracles/judge.h"

namespace samestate {

/// The limit on the RMS of the row errors of a head (G2 of BOUNDS 7), as judge_head applies it; infinite if
/// the policy has no such gate.
[[nodiscard]] double head_bound(const HeadOracle& oracle);

}  // namespace samestate
