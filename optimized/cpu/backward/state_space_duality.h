#pragma once

#include "optimized/operator_kernel.h"

namespace samestate::cpu {

/// The backward pass of Mamba-2's state space duality on the CPU in chunks: a forward pass without outputs keeps the states
/// at the starts of chunks; then, from the last chunk to the first, products of the chunk's tokens with each other under the
/// mask of decays, and with the states on its two sides. The gradient of a log-decay is the sum of all terms that decay
/// through it, none of which is subtracted. All sums and states are in fp32. d.B and d.C of a group are sums over its heads
/// in their order, and the gradients of dt_bias, A_log and skip sums of each sequence first and then over sequences.
/// Gradients of tokens are rounded to contract.output, d.S to contract.state. Accepts strides and packed batches; an absent
/// cotangent is zero. Throws Error for chunk < 1.
[[nodiscard]] Outcome state_space_duality_backward_chunks(const OperatorArguments& call,
                                                          const Contract& contract);

}  // namespace samestate::cpu
