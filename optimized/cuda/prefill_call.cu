#include "optimized/cuda/prefill_call.cuh"

#include <cuda.h>

#include <string>

#include "optimized/cuda/device_memory.cuh"
#include "optimized/cuda/prefill/plan.h"

namespace samestate::cuda {
namespace {

template <bool delta, bool norm>
__global__ void __launch_bounds__(kThreads, 1)
    prefill_kernel(const __grid_constant__ Prefill c, const __grid_constant__ Maps maps) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ __align__(1024) unsigned char bytes[];
  __shared__ int launch;
  prefill_block<delta, norm>(*reinterpret_cast<Shared*>(bytes), launch, c, maps, blockIdx.x);
#else
  __trap();  // the table is asked first whether the device is one of compute capability 9.0
#endif
}

/// Tiles of 64 tokens and 64 columns of one head of [tokens, heads, width].
CUtensorMap tile_map(const void* data, std::int64_t tokens, std::int64_t heads, std::int64_t width) {
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

int attribute(cudaDeviceAttr name) {
  int device = 0;
  int value = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  check(cudaDeviceGetAttribute(&value, name, device), "cudaDeviceGetAttribute");
  return value;
}

using Kernel = void (*)(const Prefill, const Maps);

Kernel kernel_of(bool delta, bool norm) {
  if (delta) return norm ? prefill_kernel<true, true> : prefill_kernel<true, false>;
  return norm ? prefill_kernel<false, true> : prefill_kernel<false, false>;
}

}  // namespace

struct PrefillCall::Parts {
  Prefill call;
  Maps maps{};
  Kernel kernel;
  DeviceBuffer<Prepared> prepared;
  DeviceBuffer<int> ready, launches;

  Parts(const Parameters<Bf16>& p, std::int64_t tokens, bool delta)
      : call(plan_prefill(p, attribute(cudaDevAttrMultiProcessorCount))),
        kernel(kernel_of(delta, p.l2norm)),
        prepared(static_cast<std::size_t>(Prefill::slots(p, tokens))),
        ready(static_cast<std::size_t>(Prefill::slots(p, tokens))),
        launches(2) {
    call.prepared = prepared.data(), call.ready = ready.data(), call.launches = launches.data();
    check(cudaMemset(ready.data(), 0, ready.bytes()), "cudaMemset");
    check(cudaMemset(launches.data(), 0, launches.bytes()), "cudaMemset");
    if (call.bulk && tokens > 0) {
      maps = {tile_map(p.q, tokens, p.Hk, p.dk), tile_map(p.k, tokens, p.Hk, p.dk),
              tile_map(p.v, tokens, p.Hv, p.dv), tile_map(p.o, tokens, p.Hv, p.dv)};
    }
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               static_cast<int>(sizeof(Shared))),
          "cudaFuncSetAttribute");
  }
};

bool prefill_runs_here() {
  return attribute(cudaDevAttrComputeCapabilityMajor) == 9 &&
         attribute(cudaDevAttrComputeCapabilityMinor) == 0;
}

PrefillCall::PrefillCall(const Parameters<Bf16>& parameters, std::int64_t tokens, bool delta)
    : parts_(std::make_unique<Parts>(parameters, tokens, delta)) {}
PrefillCall::~PrefillCall() = default;

void PrefillCall::launch(cudaStream_t stream) const {
  const Parts& x = *parts_;
  if (x.call.items() == 0) return;
  x.kernel<<<static_cast<unsigned>(x.call.blocks()), kThreads, sizeof(Shared), stream>>>(x.call, x.maps);
  check(cudaGetLastError(), "prefill_kernel");
}

}  // namespace samestate::cuda
