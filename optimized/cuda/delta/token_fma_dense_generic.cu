#include "optimized/cuda/delta/token_fma_dense_generic.cuh"

#include <algorithm>
#include <limits>

#include "optimized/cuda/delta/dense_launch.cuh"
#include "optimized/cuda/host/device_memory.cuh"

namespace samestate::cuda {
namespace {

constexpr int kMostWarps = 8;

template <class Operand, int rows, bool delta>
__global__ void __launch_bounds__(32 * kMostWarps)
    recurrent_kernel(const Parameters<Operand> p, std::int64_t items) {
  extern __shared__ float4 shared[];
  for (std::int64_t item = blockIdx.x; item < items; item += gridDim.x) {
    recurrent_block<Operand, rows, delta>(p, item, reinterpret_cast<float*>(shared));
  }
}

template <class Operand, int rows, bool delta>
void launch(const Parameters<Operand>& p, cudaStream_t stream) {
  const int warps = (p.dk + rows - 1) / rows;
  const std::int64_t items = p.items();
  const auto blocks = static_cast<unsigned>(std::min<std::int64_t>(items, std::numeric_limits<int>::max()));
  const std::size_t bytes = sizeof(float) * static_cast<std::size_t>(recurrent_words(warps, rows));
  recurrent_kernel<Operand, rows, delta>
      <<<blocks, static_cast<unsigned>(32 * warps), bytes, stream>>>(p, items);
  check(cudaGetLastError(), "recurrent_kernel");
}

template <class Operand, bool delta>
void launch_rows(const Parameters<Operand>& p, cudaStream_t stream) {
  if (p.dk <= 8 * kMostWarps) return launch<Operand, 8, delta>(p, stream);
  if (p.dk <= 16 * kMostWarps) return launch<Operand, 16, delta>(p, stream);
  return launch<Operand, 32, delta>(p, stream);
}

}  // namespace

template <class Operand>
void launch_recurrent(Parameters<Operand> p, bool delta, cudaStream_t stream) {
  p.tile = 32;
  if (p.items() == 0) return;
  delta ? launch_rows<Operand, true>(p, stream) : launch_rows<Operand, false>(p, stream);
}

template void launch_recurrent(Parameters<float>, bool, cudaStream_t);
template void launch_recurrent(Parameters<Bf16>, bool, cudaStream_t);

static_assert(32 * kMostWarps >= 256, "dk up to 256");
static_assert(sizeof(float) * recurrent_words(kMostWarps, 32) <= 48 * 1024, "more must be opted in to");

}  // namespace samestate::cuda
