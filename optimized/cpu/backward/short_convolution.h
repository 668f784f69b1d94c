#pragma once

#include "optimized/operator_kernel.h"

namespace samestate::cpu {

/// The backward pass of the short convolution on the CPU, in fp32. With h = [state, x] of a sequence and p_t = bias +
/// sum_j w_j h_{t+j}: dp = d.y silu'(p), or d.y without an activation; d.h_{t+j} += w_j dp_t, and d.state of the state that
/// is handed on joins the last W - 1 rows of d.h, which reach into the state that came in where T < W - 1. d.kernel and d.bias
/// are sums of dp_t h_{t+j} and dp_t over all tokens of all sequences, each sequence first and then in their order. d.x and
/// d.kernel are rounded to contract.output, d.state to contract.state. Accepts strides and packed batches; an absent
/// cotangent is zero.
[[nodiscard]] Outcome short_convolution_backward_gather(const OperatorArguments& call,
                                                        const Contract& contract);

}  // namespace samestate::cpu
