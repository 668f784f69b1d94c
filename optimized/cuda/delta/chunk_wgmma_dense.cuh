#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <memory>

#include "optimized/cuda/delta/dense_parameters.cuh"
#include "optimized/kernel.h"

namespace samestate::cuda {

/// A call of the prefill kernels with the memory and the tensor maps that it needs besides its tensors. Two calls in
/// flight at once need two of them.
class PrefillCall {
 public:
  /// `tokens`: rows of q, of all sequences; `row` of chunked_rows() before the generic one; `traced`: by the kernels of
  /// chunk_wgmma_dense_trace.cuh. Throws Error if memory or a tensor map is refused.
  PrefillCall(const Parameters<Bf16>& parameters, std::int64_t tokens, bool delta, std::size_t row,
              bool traced = false);
  PrefillCall(const PrefillCall&) = delete;
  PrefillCall& operator=(const PrefillCall&) = delete;
  ~PrefillCall();

  /// Enqueues the call, without waiting; a graph may be captured from it. Throws Error if the device refuses.
  void launch(cudaStream_t stream) const;

  /// Returns what the warps of one block wait for in a call that is traced (trace_launch()). Throws Error if
  /// there is no such block.
  [[nodiscard]] KernelTrace trace(std::int64_t block) const;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace samestate::cuda
