#pragma once

#include <cstddef>
#include <cstdint>

#include "optimized/cuda/units/intrinsics.cuh"

/// A launch, on the device or by the emulation. A grid `Body` has `Parameters`, `kThreads` threads a block and
/// `run(parameters, shared)`, which every thread of every block executes; `shared` is the block's memory, aligned to 16 bytes.
/// It may name `kResidentBlocks`, as many as an SM is to hold, where the compiler would take more registers, and `kStartsEarly`, where its
/// blocks may be on the device before the grid before them has ended, and wait there for its end. Not where a grid is less than a wave:
/// its blocks would crowd the multiprocessors that are idle by then.
#ifdef __CUDACC__
#include <cuda_runtime.h>

#define SAMESTATE_PRAGMA(text) _Pragma(#text)
#define SAMESTATE_UNROLL_BY(n) SAMESTATE_PRAGMA(unroll n)

#include "optimized/cuda/host/device_memory.cuh"

namespace samestate::cuda {

SAMESTATE_DEVICE std::int64_t block_index() { return static_cast<std::int64_t>(blockIdx.x); }
SAMESTATE_DEVICE std::int64_t grid_blocks() { return static_cast<std::int64_t>(gridDim.x); }

template <class Body>
constexpr int resident_blocks() {
  if constexpr (requires { Body::kResidentBlocks; }) return Body::kResidentBlocks;
  return 1;
}

template <class Body>
constexpr bool kEarly = requires {
  Body::kStartsEarly;
};

template <class Body>
__global__ void __launch_bounds__(Body::kThreads, resident_blocks<Body>())
    grid_kernel(const __grid_constant__ typename Body::Parameters p) {
  extern __shared__ __align__(16) unsigned char shared[];
  if constexpr (kEarly<Body>) {
    let_next_grid_start();
    wait_for_grids_before();
  }
  Body::run(p, shared);
}

/// Always the device's limit, never one launch's need: the attribute belongs to the function, and a smaller value set between
/// another thread's setting and its launch makes that launch fail.
template <class Body>
void allow_shared_memory() {
  check(cudaFuncSetAttribute(grid_kernel<Body>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             device_attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin)),
        "cudaFuncSetAttribute");
}

/// Enqueues `blocks` blocks; does nothing if there are none. Throws Error if the device refuses them.
template <class Body>
void launch(unsigned blocks, std::size_t shared_bytes, const typename Body::Parameters& p,
            cudaStream_t stream) {
  if (blocks == 0) return;
  constexpr std::size_t kGivenAnyway = 48 * 1024;
  if (shared_bytes > kGivenAnyway) allow_shared_memory<Body>();
  cudaLaunchAttribute programmatic{};
  programmatic.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  programmatic.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(blocks);
  config.blockDim = dim3(Body::kThreads);
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  config.attrs = &programmatic;
  config.numAttrs = kEarly<Body> ? 1 : 0;
  check(cudaLaunchKernelEx(&config, grid_kernel<Body>, p), "the launch");
}

}  // namespace samestate::cuda
#else
#define SAMESTATE_UNROLL_BY(n)
#include "optimized/cuda/host/emulated_device.h"
#endif

#include <algorithm>
#include <limits>

namespace samestate::cuda {

/// Blocks for `items` of which one takes `each`; more than fit a grid go round.
inline unsigned blocks_of(std::int64_t items, std::int64_t each) {
  return static_cast<unsigned>(
      std::min<std::int64_t>((items + each - 1) / each, std::numeric_limits<int>::max()));
}

/// A grid of independent items, one a thread: `Item` has `Parameters`, which know their `items()`, and
/// `run(parameters, item)`.
template <class Item, int threads = 256>
struct EachThread {
  using Parameters = typename Item::Parameters;
  static constexpr int kThreads = threads;
  static SAMESTATE_DEVICE void run(const Parameters& p, unsigned char*) {
    for (std::int64_t i = block_index() * kThreads + thread_index(); i < Item::items(p);
         i += grid_blocks() * kThreads)
      Item::run(p, i);
  }
  static void launch(const Parameters& p, cudaStream_t stream) {
    cuda::launch<EachThread>(blocks_of(Item::items(p), kThreads), 0, p, stream);
  }
};

/// Does the same with one item per warp.
template <class Item>
struct EachWarp {
  using Parameters = typename Item::Parameters;
  static constexpr int kThreads = 256;
  static SAMESTATE_DEVICE void run(const Parameters& p, unsigned char*) {
    for (std::int64_t i = block_index() * (kThreads / 32) + warp_index(); i < Item::items(p);
         i += grid_blocks() * (kThreads / 32))
      Item::run(p, i);
  }
  static void launch(const Parameters& p, cudaStream_t stream) {
    cuda::launch<EachWarp>(blocks_of(Item::items(p), kThreads / 32), 0, p, stream);
  }
};

}  // namespace samestate::cuda
