#pragma once

#include "optimized/cuda/units/hopper.cuh"

/// Products of one warpgroup, 64 x 64 results, bf16 operands, fp32 sums (wgmma m64n64k16). They are asynchronous:
/// c belongs to the unit from multiply() until a products_wait() that covers its group. c[4 j + 2 i + e] of lane l
/// of warp w is element (16 w + l / 4 + 8 i, 8 j + 2 (l % 4) + e).
///
/// Products in flight may cross neither a loop's back edge nor a branch: the assembler then serialises every product
/// of the function (C7514 and its like, which fail the build).
#ifndef __CUDACC__
#include "optimized/cuda/units/emulated_wgmma.h"
#else

// An asm statement takes its operands one by one, and no pack expands there: the places and sums of all widths, in order.
#define SAMESTATE_TEN(t) \
  "%" #t "0, %" #t "1, %" #t "2, %" #t "3, %" #t "4, %" #t "5, %" #t "6, %" #t "7, %" #t "8, %" #t "9, "
#define SAMESTATE_PLACES_30 SAMESTATE_TEN() SAMESTATE_TEN(1) SAMESTATE_TEN(2)
#define SAMESTATE_PLACES_60 SAMESTATE_PLACES_30 SAMESTATE_TEN(3) SAMESTATE_TEN(4) SAMESTATE_TEN(5)
#define SAMESTATE_PLACES_32 "{" SAMESTATE_PLACES_30 "%30, %31}, "
#define SAMESTATE_PLACES_64 "{" SAMESTATE_PLACES_60 "%60, %61, %62, %63}, "
#define SAMESTATE_SUMS_4(c, i) "+f"((c)[i]), "+f"((c)[(i) + 1]), "+f"((c)[(i) + 2]), "+f"((c)[(i) + 3])
#define SAMESTATE_SUMS_16(c, i)                                                       \
  SAMESTATE_SUMS_4(c, i), SAMESTATE_SUMS_4(c, (i) + 4), SAMESTATE_SUMS_4(c, (i) + 8), \
      SAMESTATE_SUMS_4(c, (i) + 12)
#define SAMESTATE_SUMS_32(c, i) SAMESTATE_SUMS_16(c, i), SAMESTATE_SUMS_16(c, (i) + 16)
#define SAMESTATE_SUMS_64(c, i) SAMESTATE_SUMS_32(c, i), SAMESTATE_SUMS_32(c, (i) + 32)
#define SAMESTATE_FACTOR(a) "r"((a)[0]), "r"((a)[1]), "r"((a)[2]), "r"((a)[3])
#define SAMESTATE_WGMMA(n) "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32.bf16.bf16 "

namespace samestate::cuda {

/// 16 of a tile's 64 columns as the inner index: rows of the tile are rows of A, or columns of B.
struct ByRows {
  std::uint32_t low;
};
/// 16 of a tile's 64 rows as the inner index: columns of the tile are columns of B.
struct ByColumns {
  std::uint32_t low;
};

/// Lower half of a descriptor: the address in units of 16 bytes. The upper half is the same for all: groups of eight
/// rows 1024 bytes apart, 128-byte swizzle.
SAMESTATE_DEVICE std::uint32_t descriptor(const Bf16* tile, int units) {
  return (shared_address(tile) >> 4) + 0x10000U + static_cast<std::uint32_t>(units);
}
SAMESTATE_DEVICE ByRows by_rows(const Bf16* tile, int step) { return {descriptor(tile, 2 * step)}; }
SAMESTATE_DEVICE ByColumns by_columns(const Bf16* tile, int step) { return {descriptor(tile, 128 * step)}; }

/// Registers written before are what the products after it read.
SAMESTATE_DEVICE void products_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
/// The products since the last one are a group.
SAMESTATE_DEVICE void products_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
/// All groups but the last n are done.
template <int n>
SAMESTATE_DEVICE void products_wait() {
  const Waiting waiting(Waiting::kProducts);
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(n) : "memory");
}

/// c (+)= A B, A [64, 16] in registers: a[2 h + i] holds row 16 w + l / 4 + 8 i, columns 2 (l % 4) + {0, 1} + 8 h.
/// `transposed`, 0 or 1: rows of the tile are the inner index.
template <int transposed>
SAMESTATE_DEVICE void multiply_registers(float (&c)[32], const std::uint32_t (&a)[4], std::uint32_t b,
                                         bool add) {
  asm volatile(
      "{\n.reg .pred p;\n.reg .b64 b;\nsetp.ne.b32 p, %37, 0;\nmov.b64 b, {%36, "
      "0x40000040};\n" SAMESTATE_WGMMA(64) SAMESTATE_PLACES_32 "{%32, %33, %34, %35}, b, p, 1, 1, %38;\n}\n"
      : SAMESTATE_SUMS_32(c, 0)
      : SAMESTATE_FACTOR(a), "r"(b), "r"(static_cast<int>(add)), "n"(transposed));
}
SAMESTATE_DEVICE void multiply(float (&c)[32], const std::uint32_t (&a)[4], ByRows b, bool add) {
  multiply_registers<0>(c, a, b.low, add);
}
SAMESTATE_DEVICE void multiply(float (&c)[32], const std::uint32_t (&a)[4], ByColumns b, bool add) {
  multiply_registers<1>(c, a, b.low, add);
}

/// c (+)= A B, A in shared memory.
SAMESTATE_DEVICE void multiply(float (&c)[32], ByRows a, ByRows b, bool add) {
  asm volatile(
      "{\n.reg .pred p;\n.reg .b64 a, b;\nsetp.ne.b32 p, %34, 0;\nmov.b64 a, {%32, 0x40000040};\nmov.b64 b, "
      "{%33, 0x40000040};\n" SAMESTATE_WGMMA(64) SAMESTATE_PLACES_32 "a, b, p, 1, 1, 0, 0;\n}\n"
      : SAMESTATE_SUMS_32(c, 0)
      : "r"(a.low), "r"(b.low), "r"(static_cast<int>(add)));
}

}  // namespace samestate::cuda
#endif
