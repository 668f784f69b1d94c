#include "optimized/cuda/prefill_call.cuh"

#include <cuda.h>

#include <optional>
#include <string>
#include <vector>

#include "optimized/cuda/device_memory.cuh"
#include "optimized/cuda/prefill/plan.h"
#include "optimized/cuda/prefill/table.h"

namespace samestate::cuda {
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
  SAMESTATE_PREFILL((split_block<delta, norm>(*reinterpret_cast<SplitShared*>(bytes), c, maps, blockIdx.x)));
}

template <int value_groups, bool delta, bool norm>
__global__ void __launch_bounds__(kFusedThreads<value_groups>, 1)
    fused_kernel(const __grid_constant__ Prefill c, const __grid_constant__ Maps maps) {
  extern __shared__ __align__(1024) unsigned char bytes[];
  SAMESTATE_PREFILL((fused_block<value_groups, delta, norm>(
      *reinterpret_cast<FusedShared<value_groups, delta>*>(bytes), c, maps, blockIdx.x)));
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

/// A kernel and how it is launched.
struct Form {
  void (*kernel)(const Prefill, const Maps);
  std::int64_t (*blocks)(const Prefill&);
  int threads;
  std::size_t shared;
};

template <int value_groups, bool delta, bool norm>
Form fused() {
  return {fused_kernel<value_groups, delta, norm>, fused_blocks<value_groups>, kFusedThreads<value_groups>,
          sizeof(FusedShared<value_groups, delta>)};
}

template <bool delta, bool norm>
Form form_of(std::size_t row) {
  if (row == kFused128Row) return fused<2, delta, norm>();
  if constexpr (!delta) {
    if (row == kFused64Row) return fused<1, delta, norm>();
  }
  return {split_kernel<delta, norm>, split_blocks, kSplitThreads, sizeof(SplitShared)};
}

Form form_of(std::size_t row, bool delta, bool norm) {
  if (delta) return norm ? form_of<true, true>(row) : form_of<true, false>(row);
  return norm ? form_of<false, true>(row) : form_of<false, false>(row);
}

/// What the helpers of the split form publish, and their flags.
struct Published {
  DeviceBuffer<Prepared> prepared;
  DeviceBuffer<int> ready, launches;

  explicit Published(std::size_t slots) : prepared(slots), ready(slots), launches(2) {
    check(cudaMemset(ready.data(), 0, ready.bytes()), "cudaMemset");
    check(cudaMemset(launches.data(), 0, launches.bytes()), "cudaMemset");
  }
};

}  // namespace

struct PrefillCall::Parts {
  Prefill call;
  Maps maps{};
  Form form;
  std::optional<Published> published;
  std::optional<DeviceBuffer<int>> order;

  Parts(const Parameters<Bf16>& p, std::int64_t tokens, bool delta, std::size_t row)
      : call(plan_prefill(p, attribute(cudaDevAttrMultiProcessorCount))),
        form(form_of(row, delta, p.l2norm)) {
    if (row == kSplitRow) {
      published.emplace(static_cast<std::size_t>(Prefill::slots(p, tokens)));
      call.prepared = published->prepared.data(), call.ready = published->ready.data();
      call.launches = published->launches.data();
    }
    if (p.cu_seqlens && p.sequences > 1) {
      std::vector<std::int64_t> offsets(static_cast<std::size_t>(p.sequences) + 1);
      check(cudaMemcpy(offsets.data(), p.cu_seqlens, offsets.size() * sizeof(offsets[0]),
                       cudaMemcpyDeviceToHost),
            "cudaMemcpy");
      order.emplace(longest_first(offsets));
      call.order = order->data();
    }
    if (call.bulk && tokens > 0) {
      maps = {tile_map(p.q, tokens, p.Hk, p.dk), tile_map(p.k, tokens, p.Hk, p.dk),
              tile_map(p.v, tokens, p.Hv, p.dv), tile_map(p.o, tokens, p.Hv, p.dv)};
    }
    check(cudaFuncSetAttribute(form.kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               static_cast<int>(form.shared)),
          "cudaFuncSetAttribute");
  }
};

bool prefill_runs_here() {
  return attribute(cudaDevAttrComputeCapabilityMajor) == 9 &&
         attribute(cudaDevAttrComputeCapabilityMinor) == 0;
}

PrefillCall::PrefillCall(const Parameters<Bf16>& parameters, std::int64_t tokens, bool delta, std::size_t row)
    : parts_(std::make_unique<Parts>(parameters, tokens, delta, row)) {}
PrefillCall::~PrefillCall() = default;

void PrefillCall::launch(cudaStream_t stream) const {
  const Parts& x = *parts_;
  if (x.call.items() == 0) return;
  const auto blocks = static_cast<unsigned>(x.form.blocks(x.call));
  x.form.kernel<<<blocks, static_cast<unsigned>(x.form.threads), x.form.shared, stream>>>(x.call, x.maps);
  check(cudaGetLastError(), "prefill_kernel");
}

}  // namespace samestate::cuda
