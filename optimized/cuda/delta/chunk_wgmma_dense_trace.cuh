#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <functional>

#include "optimized/cuda/delta/chunk_wgmma_dense/layout.cuh"
#include "optimized/kernel.h"

namespace samestate::cuda {

struct PrefillForm;

/// The kernel of that row of chunked_rows() from the same sources, whose waits take notes where trace_launch() asks for them.
[[nodiscard]] PrefillForm traced_form(std::size_t row, bool delta, bool norm);

/// Returns what block `block` of `blocks` waits for during `launch`, which launches a traced_form() once on a
/// stream; two launches without recording precede it. Throws Error if the device refuses.
[[nodiscard]] KernelTrace trace_launch(const Prefill& call, std::size_t row, bool delta, std::int64_t block,
                                       std::int64_t blocks, const std::function<void(cudaStream_t)>& launch);

}  // namespace samestate::cuda
