#pragma once

#include <vector>

#include "oracles/systems/stages.h"
#include "reference/layers/gated_delta_net.h"

/// What the rows of the Gated DeltaNet layer share: its call, and its stages.
namespace samestate {

[[nodiscard]] GatedDeltaNetShape gated_delta_net_shape(const Call& call);

/// Which tokens of a mask [T, 1] are no padding.
template <class Scalar>
[[nodiscard]] std::vector<bool> real_tokens(const Matrix<Scalar>& mask) {
  std::vector<bool> real;
  for (Index t = 0; t < mask.rows(); ++t) real.push_back(mask(t, 0) != Scalar(0));
  return real;
}

/// projections -> convolution -> norm of q, norm of k, gates -> rule -> norm -> output (EQUATIONS 5.6). Taps: mixed [T,
/// channels], z [T, Hv dv], b, a [T, Hv]; convolved [T, channels]; q, k [T, Hk, dk] normalised; g, beta [T, Hv] in fp32;
/// gated [T, Hv dv].
[[nodiscard]] LayerStages gated_delta_net_stages(const Call& call);

}  // namespace samestate
