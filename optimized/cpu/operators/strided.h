#pragma once

#include <functional>

#include "optimized/operator_kernel.h"

namespace samestate::cpu {

/// A kernel of dense tensors as one that takes strided ones: it is called on dense copies, and what it wrote
/// is put where the caller's tensors lie, as a wrapper does that makes its arguments contiguous.
[[nodiscard]] std::function<Outcome(const OperatorArguments&, const Contract&)> with_dense_copies(
    Outcome (*run)(const OperatorArguments&, const Contract&));

}  // namespace samestate::cpu
