#pragma once

#include "optimized/operator_kernel.h"

/// The backward passes of gates and of the rotary embedding on the CPU, in fp32.
namespace samestate::cpu {

/// For g = -exp(A_log) softplus(a + dt_bias) and beta = sigma(b): d.a = -d.g exp(A_log) sigma(a + dt_bias), d.A_log the sum
/// of d.g g over all tokens, d.dt_bias that of d.a, and d.b = d.beta beta (1 - beta). d.a and d.b are rounded to
/// contract.output; the sums stay in fp32.
[[nodiscard]] Outcome activation_gates_backward_branchless(const OperatorArguments& call,
                                                           const Contract& contract);

/// Turns the pairs of d.y back by their angles, the other columns pass; d.x is rounded to contract.output.
[[nodiscard]] Outcome rotary_embedding_backward_full_width(const OperatorArguments& call,
                                                           const Contract& contract);

}  // namespace samestate::cpu
