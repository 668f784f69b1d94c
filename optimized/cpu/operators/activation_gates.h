#pragma once

#include "optimized/operator_kernel.h"

namespace samestate::cpu {

/// g and beta of every token in one pass, without a branch on the sign.
[[nodiscard]] Outcome activation_gates_branchless(const OperatorArguments& call, const Contract& contract);

}  // namespace samestate::cpu
