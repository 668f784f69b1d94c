#pragma once

#include "optimized/operator_kernel.h"

namespace samestate::cpu {

/// The gradients of Qwen3-Next's gated attention layer. All tokens of the call go through each projection together, and each
/// sequence through attention in tiles of `chunk` keys.
[[nodiscard]] Outcome gated_attention_backward_online(const OperatorArguments& call,
                                                      const Contract& contract);

}  // namespace samestate::cpu
