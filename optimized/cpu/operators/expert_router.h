#pragma once

#include "optimized/operator_kernel.h"

namespace samestate::cpu {

/// The router that chooses by logits: the K largest, then softmax over those, in tiles of tokens. Under a
/// contract with 16-bit inputs logits and weights are kept in that format.
[[nodiscard]] Outcome expert_router_logits_first(const OperatorArguments& call, const Contract& contract);

/// The auxiliary loss in one pass over the tokens: counts are kept as integers, and probabilities are summed.
[[nodiscard]] Outcome load_balance_one_pass(const OperatorArguments& call, const Contract& contract);

}  // namespace samestate::cpu
