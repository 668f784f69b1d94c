#include "optimized/cuda/delta/chunk_fma_dense.cuh"

#include "optimized/cuda/delta/chunk_fma_dense/chain.cuh"
#include "optimized/cuda/delta/chunk_fma_dense/products.cuh"
#include "optimized/cuda/delta/chunk_mma_dense/chain.cuh"
#include "optimized/cuda/delta/chunk_mma_dense/products.cuh"

namespace samestate::cuda {
namespace {

using simt::Work;

template <template <bool delta, bool norm> class Products, bool delta, bool norm>
__global__ void __launch_bounds__(simt::kThreads, Products<delta, norm>::kBlocksAtOnce)
    prepare_kernel(const __grid_constant__ Work work) {
  extern __shared__ float4 shared[];
  simt::PrepareBlock<Products, delta, norm>(work, *reinterpret_cast<simt::PrepareShared*>(shared))
      .run(blockIdx.x);
}

template <class Block, class Shared>
__global__ void __launch_bounds__(Block::kThreads, 1) chain_kernel(const __grid_constant__ Work work) {
  extern __shared__ float4 shared[];
  Block(work, *reinterpret_cast<Shared*>(shared)).run(blockIdx.x);
}

void enqueue(void (*kernel)(Work), std::int64_t blocks, int threads, std::size_t shared, const Work& work,
             cudaStream_t stream) {
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared)),
        "cudaFuncSetAttribute");
  kernel<<<static_cast<unsigned>(blocks), threads, shared, stream>>>(work);
  check(cudaGetLastError(), "simt_kernel");
}

template <template <bool delta, bool norm> class Products, bool delta, class Block, class Shared>
void enqueue(const Work& work, cudaStream_t stream) {
  enqueue(work.p.l2norm ? prepare_kernel<Products, delta, true> : prepare_kernel<Products, delta, false>,
          work.prepare_blocks(), simt::kThreads, sizeof(simt::PrepareShared), work, stream);
  enqueue(chain_kernel<Block, Shared>, work.chain_blocks(), Block::kThreads, sizeof(Shared), work, stream);
}

template <bool delta>
void enqueue(const Work& work, bool tensor_cores, cudaStream_t stream) {
  if (tensor_cores)
    enqueue<mma::Products, delta, mma::ChainBlock<delta>, mma::ChainShared>(work, stream);
  else
    enqueue<simt::FmaProducts, delta, simt::ChainBlock<delta>, simt::ChainShared>(work, stream);
}

Work work_of(const Parameters<float>& p, std::int64_t tokens) {
  Work work;
  work.p = p;
  work.tokens = tokens;
  return work;
}

}  // namespace

SimtCall::SimtCall(const Parameters<float>& parameters, std::int64_t tokens, bool delta, bool tensor_cores)
    : work_(work_of(parameters, tokens)),
      delta_(delta),
      tensor_cores_(tensor_cores),
      prepared_(static_cast<std::size_t>(work_.slots() * parameters.Hv)) {
  work_.prepared = prepared_.data();
}

void SimtCall::launch(cudaStream_t stream) const {
  if (work_.chain_blocks() == 0) return;
  delta_ ? enqueue<true>(work_, tensor_cores_, stream) : enqueue<false>(work_, tensor_cores_, stream);
}

}  // namespace samestate::cuda
