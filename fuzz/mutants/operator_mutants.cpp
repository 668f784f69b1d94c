#include "fuzz/mutants/changed_call.h"

/// Bugs of what is no matrix recurrence: the right kernel with changed arguments, a changed step or changed
/// results.
namespace samestate::mutants {

std::vector<Mutant> operator_mutants() {
  std::vector<Mutant> out = norm_and_gate_mutants();
  for (Mutant& m : layer_mutants()) out.push_back(std::move(m));
  for (Mutant& m : dendritic_mutants()) out.push_back(std::move(m));
  return out;
}

}  // namespace samestate::mutants
