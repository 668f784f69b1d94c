#pragma once

#include "optimized/operator_kernel.h"

/// Rules with a decay per key channel on the CPU, in fp32. `recurrent` goes token by token. `chunks` has chunks of
/// call.chunk tokens, in which products over the channels are made in blocks of 16 tokens: between two blocks both factors
/// decay from or to the first token of the later one, so that no factor grows, and within a block each pair of tokens has
/// its own differences of sums. A decay below e^-128 counts as a reset.
namespace samestate::cpu {

[[nodiscard]] Outcome kimi_delta_attention_recurrent(const OperatorArguments& call, const Contract& contract);
[[nodiscard]] Outcome kimi_delta_attention_chunks(const OperatorArguments& call, const Contract& contract);
[[nodiscard]] Outcome gated_delta_net_2_recurrent(const OperatorArguments& call, const Contract& contract);
[[nodiscard]] Outcome gated_delta_net_2_chunks(const OperatorArguments& call, const Contract& contract);
[[nodiscard]] Outcome gated_linear_attention_recurrent(const OperatorArguments& call, const Contract& contract);
[[nodiscard]] Outcome gated_linear_attention_chunks(const OperatorArguments& call, const Contract& contract);

}  // namespace samestate::cpu
