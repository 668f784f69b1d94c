#pragma once

#include "optimized/cuda/backward/chunk_gradients.cuh"
#include "optimized/cuda/backward/chunk_preparation.cuh"
#include "optimized/cuda/backward/key_gradients.cuh"
#include "optimized/cuda/backward/state_passes.cuh"

namespace samestate::cuda {

/// Enqueues the launches of one call (backward_parameters.cuh).
template <class Operand>
void launch_backward(const BackwardParameters<Operand>& p, cudaStream_t stream) {
  if constexpr (std::is_same_v<Operand, float>) {
    if (p.raw_q != nullptr) EachWarp<NormalisedKeys>::launch(p, stream);
  }
  ChunkPreparation<Operand>::launch(p, stream);
  ForwardStates<Operand>::launch(p, stream);
  ReverseStates<Operand>::launch(p, stream);
  ChunkGradients<Operand>::launch(p, stream);
  EachWarp<KeyGradients<Operand>>::launch(p, stream);
}

}  // namespace samestate::cuda
