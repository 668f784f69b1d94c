#pragma once

#include <cmath>

#include "oracles/judge.h"

namespace samestate {

/// 0 where there are no elements.
[[nodiscard]] inline double root_mean_square(const Vector<double>& x) {
  return x.size() == 0 ? 0.0 : std::sqrt(x.squaredNorm() / static_cast<double>(x.size()));
}

/// What the RMS of the rows' errors of a head may be (G2 of BOUNDS 7), as judge_head holds it; infinite where the policy has
/// no such gate.
[[nodiscard]] double head_bound(const HeadOracle& oracle);

}  // namespace samestate
