#pragma once

#include <cuda_runtime.h>

#include <cstddef>

#include "optimized/cuda/delta/dense_parameters.cuh"

namespace samestate::cuda {

struct Launch {
  cudaStream_t stream = nullptr;
  bool programmatic = false;  ///< may start while the grid before it ends (griddepcontrol)
};

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

/// Does the same for row `row` of kDecodeTiles, whose limits and state format must fit: token_dense_table.h
/// chooses it. Instantiated for float, Bf16 and Bf16 with a Bf16 state.
template <class Operand, class State>
void launch_decode(Parameters<Operand, State> parameters, std::size_t row, bool delta, Launch launch);
extern template void launch_decode(Parameters<float>, std::size_t, bool, Launch);
extern template void launch_decode(Parameters<Bf16>, std::size_t, bool, Launch);
extern template void launch_decode(Parameters<Bf16, Bf16>, std::size_t, bool, Launch);

}  // namespace samestate::cuda
