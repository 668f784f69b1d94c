#pragma once

#include <cuda.h>

#include <cstdint>
#include <string>

#include "optimized/cuda/host/device_memory.cuh"
#include "optimized/cuda/units/wgmma.cuh"

namespace samestate::cuda {

/// Describes tiles of 64 tokens and 64 columns of one head of [tokens, heads, width]. Throws Error if the
/// driver refuses.
inline CUtensorMap tile_map(const void* data, std::int64_t tokens, std::int64_t heads, std::int64_t width) {
  static const auto encode = [] {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult found{};
    check(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault,
                                           &found),
          "cudaGetDriverEntryPointByVersion");
    return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(function);
  }();
  CUtensorMap map;
  const auto size = [](std::int64_t n) { return static_cast<cuuint64_t>(n); };
  const cuuint64_t extent[3] = {size(width), size(heads), size(tokens)};
  const cuuint64_t stride[2] = {size(width * 2), size(heads * width * 2)};
  const cuuint32_t box[3] = {kTileColumns, 1, kTileRows};
  const cuuint32_t step[3] = {1, 1, 1};
  const CUresult status = encode(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3, const_cast<void*>(data), extent,
                                 stride, box, step, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                 CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (status != CUDA_SUCCESS) {
    throw Error("cuTensorMapEncodeTiled: error " + std::to_string(status) + " for " + std::to_string(tokens) +
                " x " + std::to_string(heads) + " x " + std::to_string(width) + "; use contract bf16");
  }
  return map;
}

}  // namespace samestate::cuda
