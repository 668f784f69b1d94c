#pragma once

#include <vector>

#include "optimized/kernel.h"

namespace samestate {

/// The chunked form over ranks (Arguments::cuts) on one device, the segments side by side: for the two delta rules, contract
/// bf16_fused, dk up to 128, compute capability 9.0. Without a device they answer Outcome no_device.
[[nodiscard]] std::vector<Kernel> cuda_segment_kernels();

}  // namespace samestate
