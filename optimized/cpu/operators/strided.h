#pragma once

#include <functional>

#include "optimized/operator_kernel.h"

namespace samestate::cpu {

/// Makes a kernel that takes only dense tensors accept strided ones: it runs on dense copies, and its outputs
/// are copied to where the caller's tensors are, like a wrapper that makes its arguments contiguous.
[[nodiscard]] std::function<Outcome(const OperatorArguments&, const Contract&)> with_dense_copies(
    Outcome (*run)(const OperatorArguments&, const Contract&));

}  // namespace samestate::cpu
