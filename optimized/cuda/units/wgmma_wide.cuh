#pragma once

#include <cstdint>

#include "optimized/cuda/units/wgmma.cuh"

/// Products of one warpgroup, 64 x 64 n results: those of wgmma.cuh over n tiles of B at once. c[32 t + i] is what c[i] is
/// there, of B's t-th tile. The unit takes one instruction for all of them: it reads A once, and from shared memory half as
/// often as it would for each (measured: docs/kernels.md).
namespace samestate::cuda {

/// 16 of the 64 rows of tiles that are `apart` tiles from each other as the inner index: their columns are columns of B.
struct ByPanels {
#ifdef __CUDACC__
  std::uint32_t low;
#else
  const Bf16* tile;
  int step, apart;
#endif
};

#ifdef __CUDACC__

#define SAMESTATE_PLACES_80 \
  "{" SAMESTATE_PLACES_60 SAMESTATE_TEN(6) "%70, %71, %72, %73, %74, %75, %76, %77, %78, %79}, "
#define SAMESTATE_PLACES_128                                                                  \
  "{" SAMESTATE_PLACES_60 SAMESTATE_TEN(6) SAMESTATE_TEN(7) SAMESTATE_TEN(8) SAMESTATE_TEN(9) \
      SAMESTATE_TEN(10) SAMESTATE_TEN(11) "%120, %121, %122, %123, %124, %125, %126, %127}, "
#define SAMESTATE_SUMS_128(c) SAMESTATE_SUMS_64(c, 0), SAMESTATE_SUMS_64(c, 64)

SAMESTATE_DEVICE ByPanels by_panels(const Bf16* tile, int step, int apart) {
  constexpr std::uint32_t kUnits = kTileBytes / 16;
  return {(shared_address(tile) >> 4) + 128U * static_cast<std::uint32_t>(step) +
          (kUnits * static_cast<std::uint32_t>(apart) << 16)};
}

/// c += A B, A in registers; c[96] has sums of three tiles, of the last one's first 32 columns alone, up to c[79].
SAMESTATE_DEVICE void multiply_panels(float (&c)[32], const std::uint32_t (&a)[4], ByPanels b) {
  multiply(c, a, ByColumns{b.low}, true);
}
SAMESTATE_DEVICE void multiply_panels(float (&c)[64], const std::uint32_t (&a)[4], ByPanels b) {
  asm volatile("{\n.reg .b64 b;\nmov.b64 b, {%68, 0x40000040};\n" SAMESTATE_WGMMA(128) SAMESTATE_PLACES_64
               "{%64, %65, %66, %67}, b, 1, 1, 1, 1;\n}\n"
               : SAMESTATE_SUMS_64(c, 0)
               : SAMESTATE_FACTOR(a), "r"(b.low));
}
SAMESTATE_DEVICE void multiply_panels(float (&c)[96], const std::uint32_t (&a)[4], ByPanels b) {
  asm volatile("{\n.reg .b64 b;\nmov.b64 b, {%84, 0x40000040};\n" SAMESTATE_WGMMA(160) SAMESTATE_PLACES_80
               "{%80, %81, %82, %83}, b, 1, 1, 1, 1;\n}\n"
               : SAMESTATE_SUMS_64(c, 0), SAMESTATE_SUMS_16(c, 64)
               : SAMESTATE_FACTOR(a), "r"(b.low));
}
SAMESTATE_DEVICE void multiply_panels(float (&c)[128], const std::uint32_t (&a)[4], ByPanels b) {
  asm volatile("{\n.reg .b64 b;\nmov.b64 b, {%132, 0x40000040};\n" SAMESTATE_WGMMA(256) SAMESTATE_PLACES_128
               "{%128, %129, %130, %131}, b, 1, 1, 1, 1;\n}\n"
               : SAMESTATE_SUMS_128(c)
               : SAMESTATE_FACTOR(a), "r"(b.low));
}

/// The same, A in shared memory.
SAMESTATE_DEVICE void multiply_panels(float (&c)[128], ByRows a, ByPanels b) {
  asm volatile(
      "{\n.reg .b64 a, b;\nmov.b64 a, {%128, 0x40000040};\n"
      "mov.b64 b, {%129, 0x40000040};\n" SAMESTATE_WGMMA(256) SAMESTATE_PLACES_128 "a, b, 1, 1, 1, 0, 1;\n}\n"
      : SAMESTATE_SUMS_128(c)
      : "r"(a.low), "r"(b.low));
}

/// c (+)= A B, A in shared memory; rows of tiles that follow each other are columns of B.
SAMESTATE_DEVICE void multiply_rows(float (&c)[32], ByRows a, ByRows b, bool add) { multiply(c, a, b, add); }
SAMESTATE_DEVICE void multiply_rows(float (&c)[64], ByRows a, ByRows b, bool add) {
  asm volatile(
      "{\n.reg .pred p;\n.reg .b64 a, b;\nsetp.ne.b32 p, %66, 0;\nmov.b64 a, {%64, 0x40000040};\n"
      "mov.b64 b, {%65, 0x40000040};\n" SAMESTATE_WGMMA(128) SAMESTATE_PLACES_64 "a, b, p, 1, 1, 0, 0;\n}\n"
      : SAMESTATE_SUMS_64(c, 0)
      : "r"(a.low), "r"(b.low), "r"(static_cast<int>(add)));
}

/// Does the same for two tiles with A in registers: x (+)= A B of the tile of b, y (+)= A B of the next tile.
SAMESTATE_DEVICE void multiply_rows(float (&x)[32], float (&y)[32], const std::uint32_t (&a)[4], ByRows b,
                                    bool add) {
  asm volatile(
      "{\n.reg .pred p;\n.reg .b64 b;\nsetp.ne.b32 p, %69, 0;\nmov.b64 b, {%68, "
      "0x40000040};\n" SAMESTATE_WGMMA(128) SAMESTATE_PLACES_64 "{%64, %65, %66, %67}, b, p, 1, 1, 0;\n}\n"
      : SAMESTATE_SUMS_32(x, 0), SAMESTATE_SUMS_32(y, 0)
      : SAMESTATE_FACTOR(a), "r"(b.low), "r"(static_cast<int>(add)));
}

#else

inline ByPanels by_panels(const Bf16* tile, int step, int apart) { return {tile, step, apart}; }

namespace emulation {
/// Sums of the t-th tile.
template <int n>
float (&sums_of_tile(float (&c)[n], int t))[32] {
  return *reinterpret_cast<float(*)[32]>(c + 32 * t);
}
}  // namespace emulation

template <int n>
void multiply_panels(float (&c)[n], const std::uint32_t (&a)[4], ByPanels b) {
  for (int t = 0; t < n / 32; ++t)
    multiply(emulation::sums_of_tile(c, t), a, by_columns(b.tile + t * b.apart * (kTileBytes / 2), b.step),
             true);
}

inline void multiply_panels(float (&c)[128], ByRows a, ByPanels b) {
  for (int t = 0; t < 4; ++t)
    multiply(emulation::sums_of_tile(c, t), a, by_columns(b.tile + t * b.apart * (kTileBytes / 2), b.step),
             true);
}

template <int n>
void multiply_rows(float (&c)[n], ByRows a, ByRows b, bool add) {
  for (int t = 0; t < n / 32; ++t)
    multiply(emulation::sums_of_tile(c, t), a, ByRows{b.start + t * kTileBytes}, add);
}

inline void multiply_rows(float (&x)[32], float (&y)[32], const std::uint32_t (&a)[4], ByRows b, bool add) {
  multiply(x, a, b, add);
  multiply(y, a, ByRows{b.start + kTileBytes}, add);
}

#endif

}  // namespace samestate::cuda
