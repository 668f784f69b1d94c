#include "optimized/cuda/simt_call.cuh"

#include "optimized/cuda/simt/chain.cuh"
#include "optimized/cuda/simt/prepare.cuh"

namespace samestate::cuda {
namespace {

using simt::Work;

template <bool delta, bool norm>
__global__ void __launch_bounds__(simt::kThreads, 2) prepare_kernel(const __grid_constant__ Work work) {
  extern __shared__ float4 shared[];
  simt::PrepareBlock<delta, norm>(work, *reinterpret_cast<simt::PrepareShared*>(shared)).run(blockIdx.x);
}

template <bool delta>
__global__ void __launch_bounds__(simt::kThreads, 1) chain_kernel(const __grid_constant__ Work work) {
  extern __shared__ float4 shared[];
  simt::ChainBlock<delta>(work, *reinterpret_cast<simt::ChainShared*>(shared)).run(blockIdx.x);
}

void enqueue(void (*kernel)(Work), std::int64_t blocks, std::size_t shared, const Work& work,
             cudaStream_t stream) {
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared)),
        "cudaFuncSetAttribute");
  kernel<<<static_cast<unsigned>(blocks), simt::kThreads, shared, stream>>>(work);
  check(cudaGetLastError(), "simt_kernel");
}

template <bool delta>
void enqueue(const Work& work, cudaStream_t stream) {
  enqueue(work.p.l2norm ? prepare_kernel<delta, true> : prepare_kernel<delta, false>, work.prepare_blocks(),
          sizeof(simt::PrepareShared), work, stream);
  enqueue(chain_kernel<delta>, work.chain_blocks(), sizeof(simt::ChainShared), work, stream);
}

Work work_of(const Parameters<float>& p, std::int64_t tokens) {
  Work work;
  work.p = p;
  work.tokens = tokens;
  return work;
}

}  // namespace

SimtCall::SimtCall(const Parameters<float>& parameters, std::int64_t tokens, bool delta)
    : work_(work_of(parameters, tokens)),
      delta_(delta),
      prepared_(static_cast<std::size_t>(work_.slots() * parameters.Hv)) {
  work_.prepared = prepared_.data();
}

void SimtCall::launch(cudaStream_t stream) const {
  if (work_.chain_blocks() == 0) return;
  delta_ ? enqueue<true>(work_, stream) : enqueue<false>(work_, stream);
}

}  // namespace samestate::cuda
