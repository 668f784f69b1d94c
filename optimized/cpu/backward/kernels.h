#pragma once

#include <vector>

#include "optimized/call_kernel.h"

namespace samestate::cpu {

/// The rows of the backward passes of the recurrent family on the CPU: recurrent and chunked for each system.
[[nodiscard]] std::vector<CallKernel> backward_kernels();

}  // namespace samestate::cpu
