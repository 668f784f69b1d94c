#pragma once

#include <algorithm>
#include <limits>

#include "oracles/bounds/stochastic.h"
#include "reference/sequence.h"

namespace samestate {

/// g as differences of its sums from the first term on, with each sum drawn as one rounding of working
/// precision: this is what a kernel has left of g if it keeps these sums and subtracts two of them. Sums
/// below `floor` count as `floor`. A kernel that adds only the terms in between rounds less.
[[nodiscard]] inline Vector<Stochastic> of_drawn_sums(
    const Vector<Stochastic>& g, double floor = -std::numeric_limits<double>::infinity()) {
  Vector<Stochastic> out(g.size());
  double sum = 0.0;
  for (Index t = 0; t < g.size(); ++t) {
    const double given = g(t).value();
    const double taken = std::max(given, floor);
    const double next = Stochastic::rounded(sum + taken, 1.0).value();
    out(t) = given + ((next - sum) - taken);
    sum = next;
  }
  return out;
}

}  // namespace samestate
