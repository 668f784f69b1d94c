#pragma once

#include <vector>

#include "optimized/kernel.h"

namespace samestate {

/// The chunked form over ranks (Arguments::cuts) on all devices that the process sees, for all four systems, with the chunked
/// kernels' contracts and limits. Ranks go to devices in order, equally many to each; a device evaluates its parts side by
/// side, as packed sequences, and states go from device to device by NCCL. Where NCCL is not installed one device
/// has all ranks. Calls of one process take turns. Without a device they answer Outcome no_device.
[[nodiscard]] std::vector<Kernel> cuda_rank_kernels();

}  // namespace samestate
