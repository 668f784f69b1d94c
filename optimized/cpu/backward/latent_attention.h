#pragma once

#include "optimized/operator_kernel.h"

namespace samestate::cpu {

/// The gradients of multi-head latent attention, with keys and values of all heads restored from the latent. All tokens of
/// the call go through each projection together, and each sequence through attention in tiles of `chunk` keys.
[[nodiscard]] Outcome latent_attention_backward_online(const OperatorArguments& call,
                                                       const Contract& contract);

}  // namespace samestate::cpu
