#pragma once

#include "optimized/operator_kernel.h"

namespace samestate::cpu {

/// Qwen3-Next's gated attention layer over a prompt: projections, norm and rotation of the heads in one pass
/// per token, attention in tiles of `chunk` keys with the gate applied before anything is stored, then
/// o_proj.
[[nodiscard]] Outcome gated_attention_online(const OperatorArguments& call, const Contract& contract);

}  // namespace samestate::cpu
