#pragma once

#include <cstdint>
#include <vector>

#include "fuzz/mutants/mutant.h"

namespace samestate {

/// The mutants that a run looks like: those of the form that ran come first, the most similar first.
struct Likeness {
  std::vector<const Mutant*> mutants;
  std::int64_t tried = 0;
  std::int64_t all = 0;  ///< the number of mutants of the case's system; larger than `tried` if the time was
                         ///< up
};

/// The mutants of the case's system whose values on the inputs in `trace` account for kExplainedShare of the
/// difference between the run's values and the correct kernel's, and leave at most three times as much of it as the
/// best of them; one form per fault, at most four. For a law, the run that does not follow the equations is compared
/// (wrong_run). None if there is no such run, or if it left no outputs. Starts no mutant after `seconds`.
[[nodiscard]] Likeness mutants_like(const Resolved& r, const Trace& trace, double seconds = 10.0);

}  // namespace samestate
