#include "optimized/cuda/delta/chunk_mma_dense_generic.cuh"

#include <algorithm>
#include <limits>
#include <string>

#include "optimized/cuda/delta/dense_launch.cuh"
#include "optimized/cuda/host/device_memory.cuh"

namespace samestate::cuda {
namespace {

constexpr int kThreads = 256;
static_assert(kThreads % 32 == 0, "products, sums and the inverse are shared out by whole warps");

template <class Operand, bool delta>
__global__ void __launch_bounds__(kThreads, 1)
    chunked_kernel(const Parameters<Operand> p, const ChunkLayout layout, std::int64_t items) {
  extern __shared__ float4 shared[];
  for (std::int64_t item = blockIdx.x; item < items; item += gridDim.x) {
    ChunkedBlock<Operand, delta>(p, layout, reinterpret_cast<unsigned char*>(shared)).run(item);
  }
}

/// Chooses the tile of value columns whose blocks finish soonest: rounds of blocks times the work of one.
/// Every block repeats what depends only on the keys, which costs about as much as `kShared` columns.
template <class Operand>
ChunkLayout choose_tile(Parameters<Operand>& p, bool delta) {
  constexpr std::int64_t kShared = 64;
  const int available = device_attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin);
  const std::int64_t at_once = device_attribute(cudaDevAttrMultiProcessorCount);
  const int keys = (p.dk + 15) / 16 * 16;
  ChunkLayout best;
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  for (int tile : {64, 32, 16}) {
    if (tile > 16 && tile / 2 >= p.dv) continue;
    for (int panel : {keys, std::min(keys, 64)}) {
      const ChunkLayout layout = chunk_layout<Operand>(p.chunk, p.dk, tile, panel, delta);
      if (layout.bytes > available) continue;
      Parameters<Operand> tiled = p;
      tiled.tile = tile;
      const std::int64_t cost = (tiled.items() + at_once - 1) / at_once * (kShared + tile);
      if (cost < least) {
        least = cost;
        best = layout;
        p.tile = tile;
      }
      break;
    }
  }
  if (best.bytes == 0) {
    throw Error("chunk=" + std::to_string(p.chunk) + " with dk=" + std::to_string(p.dk) +
                " needs more than the " + std::to_string(available) +
                " bytes of shared memory of this device; use a shorter chunk");
  }
  return best;
}

template <class Operand, bool delta>
void launch(const Parameters<Operand>& p, const ChunkLayout& layout, cudaStream_t stream) {
  // Always set the device's limit, never what this launch needs: the attribute belongs to the function, and
  // if another thread sets a smaller value between this setting and the launch, the launch fails.
  check(cudaFuncSetAttribute(chunked_kernel<Operand, delta>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             device_attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin)),
        "cudaFuncSetAttribute");
  const std::int64_t items = p.items();
  const auto blocks = static_cast<unsigned>(std::min<std::int64_t>(items, std::numeric_limits<int>::max()));
  chunked_kernel<Operand, delta>
      <<<blocks, kThreads, static_cast<std::size_t>(layout.bytes), stream>>>(p, layout, items);
  check(cudaGetLastError(), "chunked_kernel");
}

}  // namespace

template <class Operand>
void launch_chunked(Parameters<Operand> p, bool delta, cudaStream_t stream) {
  if (p.items() == 0) return;
  const ChunkLayout layout = choose_tile(p, delta);
  delta ? launch<Operand, true>(p, layout, stream) : launch<Operand, false>(p, layout, stream);
}

template void launch_chunked(Parameters<float>, bool, cudaStream_t);
template void launch_chunked(Parameters<Bf16>, bool, cudaStream_t);

}  // namespace samestate::cuda
