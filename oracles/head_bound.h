#pragma once

#include <cmath>

#include "oracles/judge.h"

namespace samestate {

/// Returns 0 if there are no elements.
[[nodiscard]] inline double root_mean_square(const Vector<double>& x) {
  return x.size() == 0 ? 0.0 : std::sqrt(x.squaredNorm() / static_cast<double>(x.size()));
}

/// The limit on the RMS of the row errors of a head (G2 of BOUNDS 7), as judge_head applies it; infinite if
/// the policy has no such gate.
[[nodiscard]] double head_bound(const HeadOracle& oracle);

}  // namespace samestate
