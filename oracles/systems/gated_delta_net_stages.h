#pragma once

#include "oracles/systems/stages.h"
#include "reference/layers/gated_delta_net.h"

/// Functions shared by the rows of the Gated DeltaNet layer: its call, and its stages.
namespace samestate {

[[nodiscard]] GatedDeltaNetShape gated_delta_net_shape(const Call& call);

/// projections -> convolution -> norm of q, norm of k, gates -> rule -> norm -> output (EQUATIONS 5.6). Taps:
/// mixed [T, channels], z [T, Hv dv], b, a [T, Hv]; convolved [T, channels]; q, k [T, Hk, dk] normalised; g,
/// beta [T, Hv] in fp32; gated [T, Hv dv]. For kernels that fuse them, norms, gates and rule are one stage,
/// or these with the convolution, or norm and output.
[[nodiscard]] LayerStages gated_delta_net_stages(const Call& call);

}  // namespace samestate
