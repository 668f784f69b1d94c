#pragma once

#include <cstdint>

#include "optimized/cuda/units/wgmma_wide.cuh"

/// Products of one warpgroup with A in registers over more than one tile of B: the unit reads A once for all of them.
namespace samestate::cuda {

#ifdef __CUDACC__

/// x (+)= A B of the tile of b, y (+)= A B of the tile behind it.
SAMESTATE_DEVICE void multiply_pair(float (&x)[32], float (&y)[32], const std::uint32_t (&a)[4], ByRows b,
                                    bool add) {
  asm volatile(
      "{\n.reg .pred p;\n.reg .b64 b;\nsetp.ne.b32 p, %69, 0;\nmov.b64 b, {%68, 0x40000040};\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, "
      "%22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, "
      "%42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, "
      "%62, %63}, "
      "{%64, %65, %66, %67}, b, p, 1, 1, 0;\n}\n"
      : "+f"(x[0]), "+f"(x[1]), "+f"(x[2]), "+f"(x[3]), "+f"(x[4]), "+f"(x[5]), "+f"(x[6]), "+f"(x[7]),
        "+f"(x[8]), "+f"(x[9]), "+f"(x[10]), "+f"(x[11]), "+f"(x[12]), "+f"(x[13]), "+f"(x[14]), "+f"(x[15]),
        "+f"(x[16]), "+f"(x[17]), "+f"(x[18]), "+f"(x[19]), "+f"(x[20]), "+f"(x[21]), "+f"(x[22]),
        "+f"(x[23]), "+f"(x[24]), "+f"(x[25]), "+f"(x[26]), "+f"(x[27]), "+f"(x[28]), "+f"(x[29]),
        "+f"(x[30]), "+f"(x[31]), "+f"(y[0]), "+f"(y[1]), "+f"(y[2]), "+f"(y[3]), "+f"(y[4]), "+f"(y[5]),
        "+f"(y[6]), "+f"(y[7]), "+f"(y[8]), "+f"(y[9]), "+f"(y[10]), "+f"(y[11]), "+f"(y[12]), "+f"(y[13]),
        "+f"(y[14]), "+f"(y[15]), "+f"(y[16]), "+f"(y[17]), "+f"(y[18]), "+f"(y[19]), "+f"(y[20]),
        "+f"(y[21]), "+f"(y[22]), "+f"(y[23]), "+f"(y[24]), "+f"(y[25]), "+f"(y[26]), "+f"(y[27]),
        "+f"(y[28]), "+f"(y[29]), "+f"(y[30]), "+f"(y[31])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b.low), "r"(static_cast<int>(add)));
}

/// c += A B: columns of B are those of tiles that are two tiles apart; of three the last has 32, whose sums are c[64] to c[79].
SAMESTATE_DEVICE void multiply_width(float (&c)[32], const std::uint32_t (&a)[4], ByPanels b) {
  multiply_panels(c, a, b);
}
SAMESTATE_DEVICE void multiply_width(float (&c)[64], const std::uint32_t (&a)[4], ByPanels b) {
  multiply_panels(c, a, b);
}
SAMESTATE_DEVICE void multiply_width(float (&c)[96], const std::uint32_t (&a)[4], ByPanels b) {
  asm volatile(
      "{\n.reg .b64 b;\nmov.b64 b, {%84, 0x40000040};\n"
      "wgmma.mma_async.sync.aligned.m64n160k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, "
      "%22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, "
      "%42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, "
      "%62, %63, %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79}, "
      "{%80, %81, %82, %83}, b, 1, 1, 1, 1;\n}\n"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]), "+f"(c[4]), "+f"(c[5]), "+f"(c[6]), "+f"(c[7]),
        "+f"(c[8]), "+f"(c[9]), "+f"(c[10]), "+f"(c[11]), "+f"(c[12]), "+f"(c[13]), "+f"(c[14]), "+f"(c[15]),
        "+f"(c[16]), "+f"(c[17]), "+f"(c[18]), "+f"(c[19]), "+f"(c[20]), "+f"(c[21]), "+f"(c[22]),
        "+f"(c[23]), "+f"(c[24]), "+f"(c[25]), "+f"(c[26]), "+f"(c[27]), "+f"(c[28]), "+f"(c[29]),
        "+f"(c[30]), "+f"(c[31]), "+f"(c[32]), "+f"(c[33]), "+f"(c[34]), "+f"(c[35]), "+f"(c[36]),
        "+f"(c[37]), "+f"(c[38]), "+f"(c[39]), "+f"(c[40]), "+f"(c[41]), "+f"(c[42]), "+f"(c[43]),
        "+f"(c[44]), "+f"(c[45]), "+f"(c[46]), "+f"(c[47]), "+f"(c[48]), "+f"(c[49]), "+f"(c[50]),
        "+f"(c[51]), "+f"(c[52]), "+f"(c[53]), "+f"(c[54]), "+f"(c[55]), "+f"(c[56]), "+f"(c[57]),
        "+f"(c[58]), "+f"(c[59]), "+f"(c[60]), "+f"(c[61]), "+f"(c[62]), "+f"(c[63]), "+f"(c[64]),
        "+f"(c[65]), "+f"(c[66]), "+f"(c[67]), "+f"(c[68]), "+f"(c[69]), "+f"(c[70]), "+f"(c[71]),
        "+f"(c[72]), "+f"(c[73]), "+f"(c[74]), "+f"(c[75]), "+f"(c[76]), "+f"(c[77]), "+f"(c[78]), "+f"(c[79])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b.low));
}

#else

inline void multiply_pair(float (&x)[32], float (&y)[32], const std::uint32_t (&a)[4], ByRows b, bool add) {
  multiply(x, a, b, add);
  multiply(y, a, ByRows{b.start + kTileBytes}, add);
}

template <int n>
void multiply_width(float (&c)[n], const std::uint32_t (&a)[4], ByPanels b) {
  for (int i = 0; i < n; i += 32)
    multiply(reinterpret_cast<float(&)[32]>(c[i]), a,
             by_columns(b.tile + i / 32 * b.apart * (kTileBytes / 2), b.step), true);
}

#endif

}  // namespace samestate::cuda
