#pragma once

#include "harness/systems/tensor_system.h"

namespace samestate {

/// The numbers that the sizes of a case give for the work of one of its sequences.
struct WorkOfSizes {
  bool possible = false;  ///< the sizes are possible together
  bool by_token = false;  ///< held_by_token
  bool whole = false;     ///< an output is a sum over all sequences, which are therefore all evaluated
  bool recurrent_backward = false;  ///< gradients of a recurrence
  double operations = 0.0;  ///< multiplications of the reference, or of the kernel's form where that has more
  double elements = 0.0, tensors = 0.0;
};

/// Counts them from the system's row, for a sequence of `tokens` in the form of that name.
[[nodiscard]] WorkOfSizes work_of_sizes(const TensorSystem& system, const Case& c, Index tokens,
                                        std::string_view form);

}  // namespace samestate
