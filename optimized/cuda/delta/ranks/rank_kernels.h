#pragma once

#include <vector>

#include "optimized/kernel.h"

namespace samestate {

/// The chunked form over ranks (Arguments::cuts) on all devices that the process sees, for all four systems,
/// with the contracts and limits of the chunked kernels. Ranks are assigned to devices in order, the same
/// number to each; a device evaluates its parts side by side, as packed sequences, and states pass from
/// device to device by NCCL. If NCCL is not installed, one device takes all ranks. Calls of one process take
/// turns. Without a device they return Outcome no_device.
[[nodiscard]] std::vector<Kernel> cuda_rank_kernels();

}  // namespace samestate
