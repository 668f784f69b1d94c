#pragma once

#include "optimized/operator_kernel.h"

namespace samestate::cpu {

/// The dendritic layer with injected routing, which runs every virtual head on its active tokens alone. They
/// are gathered after the convolutions, which see all tokens; the windows of a head are strided views of one
/// gathered tensor (EQUATIONS 7.3, 7.4). A low-precision contract keeps projections, expansions, convolved q,
/// k, v, the outputs of the virtual heads, their mixture and the gated vector in its format; the rule works
/// in fp32.
[[nodiscard]] Outcome dendritic_attention_compacted(const OperatorArguments& call, const Contract& contract);

}  // namespace samestate::cpu
