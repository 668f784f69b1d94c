#pragma once

#include "optimized/operator_kernel.h"

namespace samestate::cpu {

/// Depthwise causal convolution in which each input is scattered to the W outputs that see it; bias,
/// activation and the carried inputs are handled in the same call.
[[nodiscard]] Outcome short_convolution_scatter(const OperatorArguments& call, const Contract& contract);

}  // namespace samestate::cpu
