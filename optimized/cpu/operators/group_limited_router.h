#pragma once

#include "optimized/operator_kernel.h"

namespace samestate::cpu {

/// DeepSeek-V3's router. The two largest choices of each group and the order of the groups that are kept take
/// one pass each over a token's choices, which are computed in fp32 from logits kept in the contract's
/// format. Works in tiles of tokens. If all chosen scores are close to the smallest fp32 number, the weights
/// are computed after dividing out their common factor.
[[nodiscard]] Outcome group_limited_router_ordered(const OperatorArguments& call, const Contract& contract);

}  // namespace samestate::cpu
