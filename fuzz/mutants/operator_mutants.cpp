#include "fuzz/mutants/rows.h"

/// Bugs of what is no matrix recurrence.
namespace samestate::mutants {

std::vector<Mutant> operator_mutants() { return {}; }

}  // namespace samestate::mutants
