#pragma once

#include <vector>

#include "optimized/call_kernel.h"

namespace samestate::cuda {

/// The backward passes of the recurrent family in chunks on the device, as rows of the table: gated delta rule, delta rule,
/// retention and linear attention under the contracts fp32, bf16 and fp16. Their products are made by tensor cores in 16 bits,
/// but for calls that normalise q and k, whose rows of unit length are fp32 numbers and are multiplied as such. Without a device
/// they return Outcome no_device. They throw Error for inconsistent views, and if the CUDA runtime reports a failure.
[[nodiscard]] std::vector<CallKernel> backward_kernels();

}  // namespace samestate::cuda
