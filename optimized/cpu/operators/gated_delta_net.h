#pragma once

#include "optimized/operator_kernel.h"

namespace samestate::cpu {

/// The Gated DeltaNet layer around the chunked gated delta rule, with projections in the grouped layout of
/// public checkpoints. A low-precision contract keeps projections, convolved q, k, v, the output of the core
/// and the gated vector in its format; the rule itself works in fp32.
[[nodiscard]] Outcome gated_delta_net_chunks(const OperatorArguments& call, const Contract& contract);

/// The last part of that layer, from a given core output: norm, gate and projection, by the same code.
[[nodiscard]] Outcome gated_delta_net_output_fused(const OperatorArguments& call, const Contract& contract);

}  // namespace samestate::cpu
