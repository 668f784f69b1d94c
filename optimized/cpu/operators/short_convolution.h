#pragma once

#include "optimized/operator_kernel.h"

namespace samestate::cpu {

/// Depthwise causal convolution, each input scattered to the W outputs that see it; bias, activation and the
/// carried inputs in the same call.
[[nodiscard]] Outcome short_convolution_scatter(const OperatorArguments& call, const Contract& contract);

}  // namespace samestate::cpu
