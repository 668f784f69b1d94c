#pragma once

#include <algorithm>

#include "oracles/bounds/running_error.h"
#include "oracles/bounds/stochastic.h"

/// 1 - sigma(x) of reference/backward/gates.h in the scalars that carry an error. Whatever evaluates a gradient through a
/// gate in them includes this header first, since an overload is found where a template is instantiated.
namespace samestate {

/// In whatever way a kernel computes it: as sigma(-x), or as 1 - sigma(x), where the error of sigma(x) remains in a
/// difference that may be far smaller.
[[nodiscard]] inline Running logistic_complement(const Running& x) {
  const Running kept = logistic(-x), subtracted = Running(1.0) - logistic(x);
  return Running::within(kept.value(), std::max(kept.error(), subtracted.error()))
      .made_of(kept)
      .made_of(subtracted);
}

/// Subtracted, so that samples have the larger error of the two ways.
[[nodiscard]] inline Stochastic logistic_complement(const Stochastic& x) {
  return Stochastic(1.0) - logistic(x);
}

}  // namespace samestate
