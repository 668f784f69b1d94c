#pragma once

#include "optimized/operator_kernel.h"

/// The gradients of a router and of a mixture of SwiGLU experts. The chosen experts are an input. Sums are in fp32; under a
/// contract with 16-bit inputs, logits, weights, all activations that the forward pass keeps, and their cotangents are
/// kept in that format.
namespace samestate::cpu {

/// Of a router whose weights are the softmax of the chosen logits, in tiles of tokens; then the products over all tokens
/// for each block of experts.
[[nodiscard]] Outcome expert_router_backward_logits_first(const OperatorArguments& call,
                                                          const Contract& contract);

/// Of the experts: assignments sorted by expert and grouped products over its tokens; then the sum of each token.
[[nodiscard]] Outcome mixture_of_experts_backward_sorted(const OperatorArguments& call,
                                                         const Contract& contract);

}  // namespace samestate::cpu
