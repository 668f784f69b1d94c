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
SAMESTATE_DEVICE void multiply(float (&c)[32], const std::uint32_t (&a)[4], ByRows b, bool add) {
  asm volatile(
      "{\n.reg .pred p;\n.reg .b64 b;\nsetp.ne.b32 p, %37, 0;\nmov.b64 b, {%36, 0x40000040};\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16,"
      " %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
      "{%32, %33, %34, %35}, b, p, 1, 1, 0;\n}\n"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]), "+f"(c[4]), "+f"(c[5]), "+f"(c[6]), "+f"(c[7]),
        "+f"(c[8]), "+f"(c[9]), "+f"(c[10]), "+f"(c[11]), "+f"(c[12]), "+f"(c[13]), "+f"(c[14]), "+f"(c[15]),
        "+f"(c[16]), "+f"(c[17]), "+f"(c[18]), "+f"(c[19]), "+f"(c[20]), "+f"(c[21]), "+f"(c[22]),
        "+f"(c[23]), "+f"(c[24]), "+f"(c[25]), "+f"(c[26]), "+f"(c[27]), "+f"(c[28]), "+f"(c[29]),
        "+f"(c[30]), "+f"(c[31])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b.low), "r"(static_cast<int>(add)));
}

SAMESTATE_DEVICE void multiply(float (&c)[32], const std::uint32_t (&a)[4], ByColumns b, bool add) {
  asm volatile(
      "{\n.reg .pred p;\n.reg .b64 b;\nsetp.ne.b32 p, %37, 0;\nmov.b64 b, {%36, 0x40000040};\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16,"
      " %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
      "{%32, %33, %34, %35}, b, p, 1, 1, 1;\n}\n"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]), "+f"(c[4]), "+f"(c[5]), "+f"(c[6]), "+f"(c[7]),
        "+f"(c[8]), "+f"(c[9]), "+f"(c[10]), "+f"(c[11]), "+f"(c[12]), "+f"(c[13]), "+f"(c[14]), "+f"(c[15]),
        "+f"(c[16]), "+f"(c[17]), "+f"(c[18]), "+f"(c[19]), "+f"(c[20]), "+f"(c[21]), "+f"(c[22]),
        "+f"(c[23]), "+f"(c[24]), "+f"(c[25]), "+f"(c[26]), "+f"(c[27]), "+f"(c[28]), "+f"(c[29]),
        "+f"(c[30]), "+f"(c[31])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b.low), "r"(static_cast<int>(add)));
}

/// c (+)= A B, A in shared memory.
SAMESTATE_DEVICE void multiply(float (&c)[32], ByRows a, ByRows b, bool add) {
  asm volatile(
      "{\n.reg .pred p;\n.reg .b64 a, b;\nsetp.ne.b32 p, %34, 0;\nmov.b64 a, {%32, 0x40000040};\nmov.b64 b, "
      "{%33, 0x40000040};\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16,"
      " %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
      "a, b, p, 1, 1, 0, 0;\n}\n"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]), "+f"(c[4]), "+f"(c[5]), "+f"(c[6]), "+f"(c[7]),
        "+f"(c[8]), "+f"(c[9]), "+f"(c[10]), "+f"(c[11]), "+f"(c[12]), "+f"(c[13]), "+f"(c[14]), "+f"(c[15]),
        "+f"(c[16]), "+f"(c[17]), "+f"(c[18]), "+f"(c[19]), "+f"(c[20]), "+f"(c[21]), "+f"(c[22]),
        "+f"(c[23]), "+f"(c[24]), "+f"(c[25]), "+f"(c[26]), "+f"(c[27]), "+f"(c[28]), "+f"(c[29]),
        "+f"(c[30]), "+f"(c[31])
      : "r"(a.low), "r"(b.low), "r"(static_cast<int>(add)));
}

}  // namespace samestate::cuda
#endif
