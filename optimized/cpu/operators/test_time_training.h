#pragma once

#include "optimized/operator_kernel.h"

namespace samestate::cpu {

/// Steps of the squared loss, one pass over the state per step: S + k (beta (v - S^T k))^T with beta = eta
/// (EQ-05).
[[nodiscard]] Outcome gradient_steps(const OperatorArguments& call, const Contract& contract);

/// Proximal steps in the same pass, with beta = eta / (1 + eta |k|^2) (EQ-06): no system is solved.
[[nodiscard]] Outcome proximal_steps(const OperatorArguments& call, const Contract& contract);

}  // namespace samestate::cpu
