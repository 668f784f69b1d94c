#include "optimized/cuda/delta/chunk_wgmma_dense.cuh"

#include <cuda.h>

#include <optional>
#include <string>
#include <vector>

#include "optimized/cuda/delta/chunk_wgmma_dense/forms.cuh"
#include "optimized/cuda/delta/chunk_wgmma_dense/plan.h"
#include "optimized/cuda/delta/chunk_wgmma_dense_trace.cuh"
#include "optimized/cuda/host/device_memory.cuh"

namespace samestate::cuda {
namespace {

/// Describes tiles of 64 tokens and 64 columns of one head of [tokens, heads, width].
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

/// The data that the helper blocks of the split form publish, with their flags.
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
  PrefillForm form;
  std::size_t row;
  bool delta;
  std::optional<Published> published;
  std::optional<DeviceBuffer<int>> order;

  Parts(const Parameters<Bf16>& p, std::int64_t tokens, bool delta, std::size_t row, bool traced)
      : call(plan_prefill(p, device_attribute(cudaDevAttrMultiProcessorCount))),
        form(traced ? traced_form(row, delta, p.l2norm) : form_of(row, delta, p.l2norm)),
        row(row),
        delta(delta) {
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

PrefillCall::PrefillCall(const Parameters<Bf16>& parameters, std::int64_t tokens, bool delta, std::size_t row,
                         bool traced)
    : parts_(std::make_unique<Parts>(parameters, tokens, delta, row, traced)) {}
PrefillCall::~PrefillCall() = default;

void PrefillCall::launch(cudaStream_t stream) const {
  const Parts& x = *parts_;
  if (x.call.items() == 0) return;
  const auto blocks = static_cast<unsigned>(x.form.blocks(x.call));
  x.form.kernel<<<blocks, static_cast<unsigned>(x.form.threads), x.form.shared, stream>>>(x.call, x.maps);
  check(cudaGetLastError(), "prefill_kernel");
}

KernelTrace PrefillCall::trace(std::int64_t block) const {
  const Parts& x = *parts_;
  if (x.call.items() == 0) throw Error("a call of no sequence or head has no block to trace");
  const std::int64_t blocks = x.form.blocks(x.call);
  // By default this is a block that carries the state; in the split form those come after the helpers.
  if (block < 0) block = x.row == kSplitRow ? kHelpers * x.call.group : 0;
  if (block >= blocks) {
    throw Error("--block " + std::to_string(block) + ": the launch has blocks 0 to " +
                std::to_string(blocks - 1));
  }
  return trace_launch(x.call, x.row, x.delta, block, blocks, [this](cudaStream_t stream) { launch(stream); });
}

}  // namespace samestate::cuda
