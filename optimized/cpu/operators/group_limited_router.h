#pragma once

#include "optimized/operator_kernel.h"

namespace samestate::cpu {

/// DeepSeek-V3's router: the two largest of each group and the order of the groups kept in one pass each over a token's
/// choices, which are made in fp32 of logits kept in the contract's format. Tiles of tokens. Where all scores chosen are next to
/// the least number of fp32 the weights are those of what is left of their common factor.
[[nodiscard]] Outcome group_limited_router_ordered(const OperatorArguments& call, const Contract& contract);

}  // namespace samestate::cpu
