#pragma once

#include <cuda_runtime.h>

#include "optimized/cuda/parameters.cuh"

namespace samestate::cuda {

/// Enqueue the evaluation of all items of `parameters` on `stream`, without waiting; a graph may be captured
/// from it. Instantiated for float and Bf16. Throw Error where the device refuses the launch.
template <class Operand>
void launch_recurrent(Parameters<Operand> parameters, bool delta, cudaStream_t stream);
template <class Operand>
void launch_chunked(Parameters<Operand> parameters, bool delta, cudaStream_t stream);

extern template void launch_recurrent(Parameters<float>, bool, cudaStream_t);
extern template void launch_recurrent(Parameters<Bf16>, bool, cudaStream_t);
extern template void launch_chunked(Parameters<float>, bool, cudaStream_t);
extern template void launch_chunked(Parameters<Bf16>, bool, cudaStream_t);

}  // namespace samestate::cuda
