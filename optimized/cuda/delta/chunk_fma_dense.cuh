#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "optimized/cuda/delta/chunk_fma_dense/layout.cuh"
#include "optimized/cuda/host/device_memory.cuh"

namespace samestate::cuda {

/// A call of the two launches of chunk_fma_dense/, by FMAs or (chunk_mma_dense/) by tensor cores in tf32, with the memory between them. Two calls in flight at once need two of them.
class SimtCall {
 public:
  /// `tokens`: rows of q, of all sequences. Throws Error if memory is refused.
  SimtCall(const Parameters<float>& parameters, std::int64_t tokens, bool delta, bool tensor_cores);

  /// Enqueues the call, without waiting; a graph may be captured from it. Throws Error if the device refuses.
  void launch(cudaStream_t stream) const;

 private:
  simt::Work work_;
  bool delta_;
  bool tensor_cores_;
  DeviceBuffer<simt::Prepared> prepared_;
};

}  // namespace samestate::cuda
