#pragma once

#include <cstdint>

#include "optimized/cuda/units/intrinsics.cuh"

/// Around every wait of hopper.cuh and wgmma.cuh. Nothing at all, but in the traced kernels (chunk_wgmma_dense_trace.cu), which are
/// the same sources: there it notes when the wait of a warp began and ended.
namespace samestate::cuda {

/// Names of waits other than those for barriers, which are named by their address in shared memory: these are
/// beyond 1024.
struct WaitNames {
  static constexpr std::uint32_t kProducts = 1, kMeeting = 2, kStoresRead = 3, kStores = 4, kCopies = 5,
                                 kFlags = 6;
};

#ifndef SAMESTATE_TRACED

struct Waiting : WaitNames {
  SAMESTATE_DEVICE explicit Waiting(std::uint32_t) {}
};
/// Around the whole of a block.
struct TracedBlock {
  SAMESTATE_DEVICE explicit TracedBlock(const void*) {}
};

#else

struct WaitNote {
  std::uint32_t what, begin, end, unused;  ///< ticks of the multiprocessor's clock
};
struct WarpNote {
  std::uint32_t count, end;
  std::uint64_t nanoseconds;  ///< of the device's timer, read at the end
};
struct BlockNote {
  std::uint32_t begin, shared;  ///< where its shared memory begins
  std::uint64_t nanoseconds;
};
/// The notes of the block that is traced.
struct TraceNotes {
  std::int64_t block = -1;
  std::uint32_t most = 0;  ///< waits that are kept of a warp
  WaitNote* waits = nullptr;
  WarpNote* warps = nullptr;
  BlockNote* whole = nullptr;
};

namespace {

__constant__ TraceNotes trace_notes;
__shared__ std::uint32_t trace_counts[32];

SAMESTATE_DEVICE std::uint32_t clock_ticks() {
  std::uint32_t ticks;
  asm volatile("mov.u32 %0, %%clock;" : "=r"(ticks)::"memory");
  return ticks;
}
SAMESTATE_DEVICE std::uint64_t device_nanoseconds() {
  std::uint64_t time;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(time)::"memory");
  return time;
}
SAMESTATE_DEVICE bool takes_notes() { return blockIdx.x == trace_notes.block && threadIdx.x % 32 == 0; }

}  // namespace

struct Waiting : WaitNames {
  SAMESTATE_DEVICE explicit Waiting(std::uint32_t what) : what_(what), begin_(clock_ticks()) {}
  /// Without a branch: products may be in flight.
  SAMESTATE_DEVICE ~Waiting() {
    const std::uint32_t end = clock_ticks(), warp = threadIdx.x / 32;
    const std::uint32_t counter = shared_address(&trace_counts[warp]);
    asm volatile(
        "{\n.reg .pred p;\n.reg .b32 n, at, next;\n.reg .b64 to;\n"
        "setp.ne.u32 p, %0, 0;\n"
        "ld.shared.u32 n, [%1];\nmin.u32 at, n, %2;\nadd.u32 next, n, 1;\n"
        "mad.lo.u32 at, %3, %4, at;\nmad.wide.u32 to, at, 16, %5;\n"
        "@p st.shared.u32 [%1], next;\n@p st.global.v4.u32 [to], {%6, %7, %8, %8};\n}\n" ::"r"(
            static_cast<std::uint32_t>(takes_notes())),
        "r"(counter), "r"(trace_notes.most - 1), "r"(warp), "r"(trace_notes.most), "l"(trace_notes.waits),
        "r"(what_), "r"(begin_), "r"(end)
        : "memory");
  }
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;

 private:
  std::uint32_t what_, begin_;
};

/// Around the whole of a block.
struct TracedBlock {
  SAMESTATE_DEVICE explicit TracedBlock(const void* shared) {
    if (threadIdx.x < 32) trace_counts[threadIdx.x] = 0;
    if (takes_notes() && threadIdx.x == 0)
      *trace_notes.whole = {clock_ticks(), shared_address(shared), device_nanoseconds()};
    __syncthreads();
  }
  SAMESTATE_DEVICE ~TracedBlock() {
    __syncwarp();
    if (takes_notes())
      trace_notes.warps[threadIdx.x / 32] = {trace_counts[threadIdx.x / 32], clock_ticks(),
                                             device_nanoseconds()};
  }
  TracedBlock(const TracedBlock&) = delete;
  TracedBlock& operator=(const TracedBlock&) = delete;
};

#endif

}  // namespace samestate::cuda
