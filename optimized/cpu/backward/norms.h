#pragma once

#include "optimized/operator_kernel.h"

/// The backward passes of the norms on the CPU. With n = x r and r = (mean x^2 + 1e-6)^-1/2, of each row of D values:
///   dn = d.y w;  d.x = r (dn - n mean(n dn));  d.weight = sum of d.y n over all rows.
/// All of it is in fp32, with the rows of a token one after another; gradients of rows are rounded to contract.output as they
/// are written, and d.weight stays in fp32.
namespace samestate::cpu {

[[nodiscard]] Outcome rms_norm_backward_fused(const OperatorArguments& call, const Contract& contract);
/// The weight is 1 + w.
[[nodiscard]] Outcome zero_centred_rms_norm_backward_fused(const OperatorArguments& call,
                                                           const Contract& contract);
/// The zero-centred norm of x + residual, a sum that the forward pass wrote in contract.output and that is rounded so again;
/// d.sum is added to what the norm gives, and d.residual equals d.x.
[[nodiscard]] Outcome residual_rms_norm_backward_fused(const OperatorArguments& call,
                                                       const Contract& contract);
/// y = rms_norm(x) silu(z).
[[nodiscard]] Outcome gated_rms_norm_backward_fused(const OperatorArguments& call, const Contract& contract);
/// y = rms_norm(x silu(z)).
[[nodiscard]] Outcome gate_first_rms_norm_backward_fused(const OperatorArguments& call,
                                                         const Contract& contract);
/// With r = (sum x^2 + 1e-6)^-1/2 and y = x r, rounded to contract.output as the forward pass wrote it:
/// d.x = r (d.y - y <y, d.y>).
[[nodiscard]] Outcome l2norm_backward_fused(const OperatorArguments& call, const Contract& contract);

}  // namespace samestate::cpu
