#pragma once

#include <vector>

#include "optimized/operator_kernel.h"

namespace samestate {

/// The CUDA kernels of named tensors: norms of rows, activation gates, short convolution, rotary embedding, overlap windows
/// and router of dendritic attention; contracts fp32 and bf16, any size of the systems, any strides. Without a device they
/// answer Outcome no_device. They throw Error where the CUDA runtime reports a failure.
[[nodiscard]] std::vector<OperatorKernel> cuda_operator_kernels();

}  // namespace samestate
