#pragma once

#include "optimized/operator_kernel.h"

/// Mixtures of SwiGLU experts. Sums are in fp32; under a contract with 16-bit inputs, routing weights, hidden
/// activations of the experts and their outputs are kept in that format.
namespace samestate::cpu {

/// Assignments sorted by expert, one grouped product per expert over its tokens, then the sum of each token.
[[nodiscard]] Outcome mixture_of_experts_sorted(const OperatorArguments& call, const Contract& contract);

/// Token by token, with the matrices read in their stored layout, as decoding does with a handful of tokens.
[[nodiscard]] Outcome mixture_of_experts_per_token(const OperatorArguments& call, const Contract& contract);

/// The block of Qwen3-Next: a router on logits, sorted experts, and a gated shared expert.
[[nodiscard]] Outcome qwen3_next_moe_sorted(const OperatorArguments& call, const Contract& contract);

}  // namespace samestate::cpu
