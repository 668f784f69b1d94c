#include "optimized/cuda/delta/token_fma_dense.cuh"

#include <algorithm>
#include <utility>

#include "optimized/cuda/delta/dense_launch.cuh"
#include "optimized/cuda/host/device_memory.cuh"

namespace samestate::cuda {
namespace {

constexpr std::int64_t kMostGrid = 65535;  // of the second and third axis

template <class Operand, class State, bool delta, std::size_t row>
__global__ void __launch_bounds__(32 * kMostWarps, kDecodeTiles[row].blocks)
    decode_kernel(const Parameters<Operand, State> p) {
  extern __shared__ float4 shared[];
  DecodeBlock<Operand, State, delta, kDecodeTiles[row]> block(p, reinterpret_cast<float*>(shared));
  const auto tile = static_cast<int>(blockIdx.x);
  if constexpr (kDecodeTiles[row].single) {
    decode(block, blockIdx.z, blockIdx.y, tile);
  } else {
    for (std::int64_t n = blockIdx.z; n < p.sequences; n += gridDim.z)
      for (std::int64_t h = blockIdx.y; h < p.Hv; h += gridDim.y) decode(block, n, h, tile);
  }
}

template <class Operand, class State, bool delta, std::size_t row>
void launch(const Parameters<Operand, State>& p, Launch how) {
  constexpr DecodeTile tile = kDecodeTiles[row];
  static_assert(sizeof(float) * decode_words(tile, delta, kMostWarps) <= 48 * 1024,
                "more shared memory must be opted in to");
  const int warps = (p.dk + kWarpKeys - 1) / kWarpKeys;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>((p.dv + tile.columns - 1) / tile.columns),
                        static_cast<unsigned>(std::min(p.Hv, kMostGrid)),
                        static_cast<unsigned>(std::min(p.sequences, kMostGrid)));
  config.blockDim = dim3(static_cast<unsigned>(32 * warps));
  config.dynamicSmemBytes = sizeof(float) * static_cast<std::size_t>(decode_words(tile, delta, warps));
  config.stream = how.stream;
  cudaLaunchAttribute programmatic{};
  programmatic.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  programmatic.val.programmaticStreamSerializationAllowed = 1;
  config.attrs = &programmatic;
  config.numAttrs = how.programmatic ? 1 : 0;
  check(cudaLaunchKernelEx(&config, decode_kernel<Operand, State, delta, row>, p), "decode_kernel");
}

template <class Operand, class State, bool delta, std::size_t row>
void launch_if(std::size_t wanted, const Parameters<Operand, State>& p, Launch how) {
  if constexpr (kDecodeTiles[row].state_bytes == sizeof(State)) {
    if (row == wanted) launch<Operand, State, delta, row>(p, how);
  }
}

template <class Operand, class State, std::size_t... row>
void launch_row(std::size_t wanted, const Parameters<Operand, State>& p, bool delta, Launch how,
                std::index_sequence<row...>) {
  delta ? (launch_if<Operand, State, true, row>(wanted, p, how), ...)
        : (launch_if<Operand, State, false, row>(wanted, p, how), ...);
}

}  // namespace

template <class Operand, class State>
void launch_decode(Parameters<Operand, State> p, std::size_t row, bool delta, Launch how) {
  if (p.sequences == 0) return;
  p.inverse_heads = 1.0F / static_cast<float>(p.tiled_heads ? p.Hk : p.Hv / p.Hk);
  p.settled = p.settled && kDecodeTiles[row].early;
  launch_row(row, p, delta, how, std::make_index_sequence<kDecodeTileCount>());
}

template void launch_decode(Parameters<float>, std::size_t, bool, Launch);
template void launch_decode(Parameters<Bf16>, std::size_t, bool, Launch);
template void launch_decode(Parameters<Bf16, Bf16>, std::size_t, bool, Launch);

}  // namespace samestate::cuda
