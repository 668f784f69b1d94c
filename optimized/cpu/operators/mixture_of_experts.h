#pragma once

#include "optimized/operator_kernel.h"

/// Mixtures of SwiGLU experts. Sums are fp32; under a contract with 16-bit inputs routing weights, the
/// experts' hidden activations and their outputs are kept in that format.
namespace samestate::cpu {

/// Assignments sorted by expert, one grouped product an expert over its tokens, then each token's sum.
[[nodiscard]] Outcome mixture_of_experts_sorted(const OperatorArguments& call, const Contract& contract);

/// Token by token, the matrices read as they lie: what decoding does with a handful of tokens.
[[nodiscard]] Outcome mixture_of_experts_per_token(const OperatorArguments& call, const Contract& contract);

/// The block of Qwen3-Next: router on logits, sorted experts, gated shared expert.
[[nodiscard]] Outcome qwen3_next_moe_sorted(const OperatorArguments& call, const Contract& contract);

}  // namespace samestate::cpu
