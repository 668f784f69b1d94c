#pragma once

#include <cstdint>

#include "optimized/cuda/units/intrinsics.cuh"

/// The operations of compute capability 9.0a that the kernels use in addition to intrinsics.cuh: barriers in
/// shared memory, bulk copies of swizzled tiles, fences between ordinary and asynchronous accesses, flags
/// between blocks, and registers by role. The matrix products are in wgmma.cuh, and the same operations on
/// the host in emulated_hopper.h.
///
/// A tile is 64 rows of 128 bytes (64 bf16), 1024-byte aligned; the 16 bytes at `byte` of `row` are at
/// swizzled(row, byte), so that eight rows of one column meet eight different banks.
namespace samestate::cuda {

inline constexpr int kTileRows = 64, kTileColumns = 64;
inline constexpr int kTileBytes = kTileRows * kTileColumns * 2;

SAMESTATE_HOST_DEVICE constexpr int swizzled(int row, int byte) {
  return row * 128 + (byte ^ (row % 8 * 16));
}

}  // namespace samestate::cuda

#ifndef __CUDACC__
#include "optimized/cuda/units/emulated_hopper.h"
#else
#include <cuda.h>

#include "optimized/cuda/units/waiting.cuh"

namespace samestate::cuda {

/// Counts arrivals and bytes of copies in phases. An arrival is one of a warp, each lane's share a 32nd: a lane that
/// arrived for all of them would order their accesses no less, but compute-sanitizer's racecheck does not follow that.
class Barrier {
 public:
  /// Called by one thread, before barriers_ready() and a block barrier.
  SAMESTATE_DEVICE void init(int arrivals) {
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(shared_address(this)), "r"(32 * arrivals));
  }
  /// An arrival that announces bytes of copies.
  SAMESTATE_DEVICE void expect(int bytes) {
    asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(shared_address(this)),
                 "r"(bytes)
                 : "memory");
    arrive();
  }
  /// Called by one thread.
  SAMESTATE_DEVICE void arrive() {
    asm volatile("mbarrier.arrive.shared.b64 _, [%0], 32;" ::"r"(shared_address(this)) : "memory");
  }
  /// One arrival of the whole warp, of each lane after its own accesses.
  SAMESTATE_DEVICE void arrive_warp() {
    asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(shared_address(this)) : "memory");
  }
  /// Until phase `phase`, counted from 0, is complete; phase -1 is. The hardware sees its parity alone: the phase
  /// before must be known to be complete, the phase after must not be (the emulation checks both).
  SAMESTATE_DEVICE void wait(int phase) {
    const Waiting waiting(shared_address(this));
    asm volatile(
        "{\n.reg .pred p;\nL_%=:\nmbarrier.try_wait.parity.shared.b64 p, [%0], %1;\n@!p bra L_%=;\n}\n" ::"r"(
            shared_address(this)),
        "r"(phase & 1)
        : "memory");
  }
  /// Waits for three barriers with their latencies (42 cycles each if the phase is complete) overlapped.
  SAMESTATE_DEVICE static void wait_all(Barrier& a, int phase_a, Barrier& b, int phase_b, Barrier& c,
                                        int phase_c) {
    const Waiting waiting(shared_address(&a));
    asm volatile(
        "{\n.reg .pred p, q, r;\nL_%=:\nmbarrier.try_wait.parity.shared.b64 p, [%0], %1;\n"
        "mbarrier.try_wait.parity.shared.b64 q, [%2], %3;\nmbarrier.try_wait.parity.shared.b64 r, [%4], %5;\n"
        "and.pred p, p, q;\nand.pred p, p, r;\n@!p bra L_%=;\n}\n" ::"r"(shared_address(&a)),
        "r"(phase_a & 1), "r"(shared_address(&b)), "r"(phase_b & 1), "r"(shared_address(&c)), "r"(phase_c & 1)
        : "memory");
  }

 private:
  std::uint64_t word_;
};

/// Makes initialised barriers visible to copies; a block barrier follows.
SAMESTATE_DEVICE void barriers_ready() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }

/// A barrier of `threads` threads, a multiple of 32; id 1 to 15.
SAMESTATE_DEVICE void named_barrier(int id, int threads) {
  const Waiting waiting(Waiting::kMeeting);
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

/// Makes this thread's stores into shared memory visible to copies and products.
SAMESTATE_DEVICE void fence_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

/// x, the same in every thread of the warp, and known to be: kept in uniform registers, addresses and descriptors made
/// of it cost the warp nothing.
SAMESTATE_DEVICE int uniform(int x) { return __reduce_max_sync(0xffffffffU, x); }
SAMESTATE_DEVICE int broadcast(int x) { return __shfl_sync(0xffffffffU, x, 0); }

SAMESTATE_DEVICE float shuffle_up(float x, int lanes) { return __shfl_up_sync(0xffffffffU, x, lanes); }

/// Registers a thread of the calling warpgroup has from here on; more than at the start, or fewer.
template <int n>
SAMESTATE_DEVICE void more_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(n));
}
template <int n>
SAMESTATE_DEVICE void fewer_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(n));
}

/// A bf16 tensor [tokens, heads, width] in global memory that is read and written by tiles of one head; what
/// lies outside is read as zero and not written.
using TensorMap = CUtensorMap;

/// Columns [column, column + 64) of tokens [token, token + 64) into a tile; arrives with kTileBytes.
SAMESTATE_DEVICE void load_tile(Bf16* tile, const TensorMap& from, Barrier& barrier, int column, int head,
                                int token) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], "
      "[%2];" ::"r"(shared_address(tile)),
      "l"(&from), "r"(shared_address(&barrier)), "r"(column), "r"(head), "r"(token)
      : "memory");
}
SAMESTATE_DEVICE void store_tile(const TensorMap& to, const Bf16* tile, int column, int head, int token) {
  asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%2, %3, %4}], [%1];" ::"l"(&to),
               "r"(shared_address(tile)), "r"(column), "r"(head), "r"(token)
               : "memory");
}
/// `bytes` as they lie, a multiple of 16.
SAMESTATE_DEVICE void load_bytes(void* to, const void* from, Barrier& barrier, int bytes) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
          shared_address(to)),
      "l"(from), "r"(bytes), "r"(shared_address(&barrier))
      : "memory");
}
SAMESTATE_DEVICE void store_bytes(void* to, const void* from, int bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to),
               "r"(shared_address(from)), "r"(bytes)
               : "memory");
}
/// The stores of this thread so far are one group.
SAMESTATE_DEVICE void commit_stores() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
/// Their shared memory has been read.
SAMESTATE_DEVICE void wait_stores_read() {
  const Waiting waiting(Waiting::kStoresRead);
  asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}
/// They are in global memory.
SAMESTATE_DEVICE void wait_stores() {
  const Waiting waiting(Waiting::kStores);
  asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

/// 4 bytes from global to shared memory, for this thread alone until a barrier; groups are waited for in
/// order.
SAMESTATE_DEVICE void copy_async_4(void* to, const void* from) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(shared_address(to)), "l"(from) : "memory");
}
SAMESTATE_DEVICE void copy_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
/// All but the last `n` groups are there.
template <int n>
SAMESTATE_DEVICE void copy_wait_but() {
  const Waiting waiting(Waiting::kCopies);
  asm volatile("cp.async.wait_group %0;" ::"n"(n) : "memory");
}

/// Global memory that this thread's finished copies wrote is there for whoever awaits `value`.
SAMESTATE_DEVICE void publish(int* flag, int value) {
  asm volatile("fence.proxy.async;\nst.release.gpu.global.s32 [%0], %1;" ::"l"(flag), "r"(value) : "memory");
}
/// Waits until the first of the expected publications has arrived, and returns how many have arrived, counted
/// in order. Called by one warp, whose lane i passes the flag of its i-th expected publication, if there is
/// one. A look takes some 2,000 cycles under load, however many flags it checks.
SAMESTATE_DEVICE int await_some(const int* flag, bool exists, int value) {
  const Waiting waiting(Waiting::kFlags);
  std::uint32_t there;
  do {
    int seen = value - 1;
    if (exists) asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(seen) : "l"(flag) : "memory");
    there = __ballot_sync(0xffffffffU, seen == value);
  } while (there % 2 == 0);
  asm volatile("fence.proxy.async;" ::: "memory");
  __syncwarp();
  return there == 0xffffffffU ? 32 : __ffs(static_cast<int>(~there)) - 1;
}
/// The value before; ordered against the other threads' accesses around theirs.
SAMESTATE_DEVICE int fetch_add(int* counter, int n) {
  int before;
  asm volatile("atom.acq_rel.gpu.global.add.s32 %0, [%1], %2;"
               : "=r"(before)
               : "l"(counter), "r"(n)
               : "memory");
  return before;
}
SAMESTATE_DEVICE int load_shared_by_all(const int* word) {
  int value;
  asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
  return value;
}

/// Two values rounded to nearest even, the first in the low half; and back. Volatile: an operand of a product is to
/// be made before products_begin(), not where the compiler would sink it to.
SAMESTATE_DEVICE std::uint32_t pack(float low, float high) {
  std::uint32_t both;
  asm volatile("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  return both;
}
SAMESTATE_DEVICE float low(std::uint32_t both) { return __uint_as_float(both << 16); }
SAMESTATE_DEVICE float high(std::uint32_t both) { return __uint_as_float(both & 0xffff0000U); }

/// x is computed before this point, not where it is used.
SAMESTATE_DEVICE void pin(float& x) { asm volatile("" : "+f"(x)); }

/// Four words that one thread writes or reads at once, 16-byte aligned.
using Words = uint4;
SAMESTATE_DEVICE Words words(std::uint32_t a, std::uint32_t b, std::uint32_t c, std::uint32_t d) {
  return make_uint4(a, b, c, d);
}

SAMESTATE_DEVICE Words load_words(const Bf16* tile, int offset) {
  return *reinterpret_cast<const uint4*>(reinterpret_cast<const char*>(tile) + offset);
}
SAMESTATE_DEVICE Words load_global_words(const Bf16* from) { return *reinterpret_cast<const uint4*>(from); }

/// Shared memory at `at` was stored to by this thread, and a copy will read it.
SAMESTATE_DEVICE void mark_stored(const void*) {}

/// 16 bytes of a tile, which copies or products read after fence_async() and a barrier.
SAMESTATE_DEVICE void store_words(Bf16* tile, int offset, Words x) {
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(shared_address(tile) + offset), "r"(x.x),
               "r"(x.y), "r"(x.z), "r"(x.w)
               : "memory");
}
/// Inverse of load_matrices: lane 8 i + r passes the byte offset of row r of matrix i in the tile. The same
/// fence.
template <bool transposed>
SAMESTATE_DEVICE void store_matrices(Bf16* tile, int offset, Words x) {
  const std::uint32_t at = shared_address(tile) + offset;
  if constexpr (transposed) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(at), "r"(x.x),
                 "r"(x.y), "r"(x.z), "r"(x.w)
                 : "memory");
  } else {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(at), "r"(x.x),
                 "r"(x.y), "r"(x.z), "r"(x.w)
                 : "memory");
  }
}

}  // namespace samestate::cuda
#endif
