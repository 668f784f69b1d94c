#pragma once

#include <cstddef>
#include <cstdint>

#include "optimized/cuda/delta/chunk_dense_table.h"
#include "optimized/cuda/delta/chunk_wgmma_dense/fused.cuh"
#include "optimized/cuda/delta/chunk_wgmma_dense/split.cuh"

/// The prefill kernels of one source file: chunk_wgmma_dense.cu, and chunk_wgmma_dense_trace.cu, whose waits take notes.
namespace samestate::cuda {

/// A kernel and how it is launched.
struct PrefillForm {
  void (*kernel)(const Prefill, const Maps);
  std::int64_t (*blocks)(const Prefill&);
  int threads;
  std::size_t shared;
};

namespace {

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define SAMESTATE_PREFILL(statement) statement
#else
#define SAMESTATE_PREFILL(statement) __trap()  // the table is asked first whether the device is one of 9.0
#endif

template <bool delta, bool norm>
__global__ void __launch_bounds__(kSplitThreads, 1)
    split_kernel(const __grid_constant__ Prefill c, const __grid_constant__ Maps maps) {
  extern __shared__ __align__(1024) unsigned char bytes[];
  const TracedBlock traced(bytes);
  SAMESTATE_PREFILL((split_block<delta, norm>(*reinterpret_cast<SplitShared*>(bytes), c, maps, blockIdx.x)));
}

template <int value_groups, bool delta, bool norm>
__global__ void __launch_bounds__(kFusedThreads<value_groups>, 1)
    fused_kernel(const __grid_constant__ Prefill c, const __grid_constant__ Maps maps) {
  extern __shared__ __align__(1024) unsigned char bytes[];
  const TracedBlock traced(bytes);
  SAMESTATE_PREFILL((fused_block<value_groups, delta, norm>(
      *reinterpret_cast<FusedShared<value_groups, delta>*>(bytes), c, maps, blockIdx.x)));
}

template <int value_groups, bool delta, bool norm>
PrefillForm fused() {
  return {fused_kernel<value_groups, delta, norm>, fused_blocks<value_groups>, kFusedThreads<value_groups>,
          sizeof(FusedShared<value_groups, delta>)};
}

template <bool delta, bool norm>
PrefillForm form_of(std::size_t row) {
  if (row == kFused128Row) return fused<2, delta, norm>();
  if constexpr (!delta) {
    if (row == kFused64Row) return fused<1, delta, norm>();
  }
  return {split_kernel<delta, norm>, split_blocks, kSplitThreads, sizeof(SplitShared)};
}

PrefillForm form_of(std::size_t row, bool delta, bool norm) {
  if (delta) return norm ? form_of<true, true>(row) : form_of<true, false>(row);
  return norm ? form_of<false, true>(row) : form_of<false, false>(row);
}

}  // namespace

#undef SAMESTATE_PREFILL

}  // namespace samestate::cuda
