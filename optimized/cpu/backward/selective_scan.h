#pragma once

#include "optimized/operator_kernel.h"

namespace samestate::cpu {

/// The backward pass of Mamba's selective scan on the CPU in chunks, as public kernels divide it: the states at the starts of
/// chunks are kept by a forward pass without outputs; then, from the last chunk to the first, the chunk's states are made
/// again and the reverse maps dh -> a dh + dy C of its tokens are composed from its last token on, before they are applied to
/// the dh that comes from behind it. All sums and states are in fp32. A block of channels has its own d.B and d.C of a
/// sequence, which are added in the order of the blocks; the gradients of dt_bias, A_log and skip are sums of each sequence
/// first and then over sequences. Gradients of tokens are rounded to contract.output, d.h to contract.state. Accepts strides
/// and packed batches; an absent cotangent is zero. Throws Error for chunk < 1.
[[nodiscard]] Outcome selective_scan_backward_chunks(const OperatorArguments& call, const Contract& contract);

}  // namespace samestate::cpu
