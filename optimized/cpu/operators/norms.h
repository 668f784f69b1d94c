#pragma once

#include "optimized/operator_kernel.h"

/// Norms over rows of D values: one pass for the sum of squares and one for the scaled row, with nothing
/// stored in between. Epsilon is 1e-6, added to the mean of squares (for l2norm: to their sum).
namespace samestate::cpu {

[[nodiscard]] Outcome rms_norm_fused(const OperatorArguments& call, const Contract& contract);
[[nodiscard]] Outcome zero_centred_rms_norm_fused(const OperatorArguments& call, const Contract& contract);
/// Also returns the sum x + residual, which the norm reads before it is rounded.
[[nodiscard]] Outcome residual_rms_norm_fused(const OperatorArguments& call, const Contract& contract);
[[nodiscard]] Outcome gated_rms_norm_fused(const OperatorArguments& call, const Contract& contract);
[[nodiscard]] Outcome gate_first_rms_norm_fused(const OperatorArguments& call, const Contract& contract);
[[nodiscard]] Outcome l2norm_fused(const OperatorArguments& call, const Contract& contract);

/// Writes x [count] times (sum x^2 / divisor + 1e-6)^-1/2 to y; all norms share this. y may be x.
void normalise_row(const float* x, std::int64_t count, float divisor, float* y);

}  // namespace samestate::cpu
