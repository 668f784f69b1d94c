#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "optimized/cuda/units/intrinsics.cuh"
#include "optimized/cuda/units/matmul.cuh"

/// fp16 as an operand format, beside fp32 and bf16 (intrinsics.cuh).
namespace samestate::cuda {

/// fp16 as stored.
struct Fp16 {
  std::uint16_t bits;
};

/// On the host, a value in fp16, rounded to nearest even; beyond 65519 it is an infinity, NaN is 0x7fff.
[[nodiscard]] inline Fp16 fp16_of(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t sign = bits >> 16 & 0x8000U;
  std::uint32_t size = bits & 0x7fffffffU;
  const auto with_sign = [&](std::uint32_t of) { return Fp16{static_cast<std::uint16_t>(sign | of)}; };
  if (size > 0x7f800000U) return {0x7fff};
  if (size >= 0x477ff000U) return with_sign(0x7c00U);
  if (size < 0x38800000U)  // subnormal: multiples of 2^-24
    return with_sign(static_cast<std::uint32_t>(std::nearbyint(std::bit_cast<float>(size) * 0x1p24F)));
  size += 0xfffU + (size >> 13 & 1U);
  return with_sign((size - 0x38000000U) >> 13);
}
/// The inverse, on the host.
[[nodiscard]] inline float float_of(Fp16 x) {
  const std::uint32_t sign = (x.bits & 0x8000U) << 16, exponent = x.bits >> 10 & 31U, rest = x.bits & 0x3ffU;
  if (exponent == 0) return std::copysign(static_cast<float>(rest) * 0x1p-24F, std::bit_cast<float>(sign));
  const std::uint32_t wide = exponent == 31 ? 255U : exponent + 112U;
  return std::bit_cast<float>(sign | wide << 23 | rest << 13);
}

#ifdef __CUDACC__
SAMESTATE_DEVICE float widen(Fp16 x) {
  float y;
  asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
  return y;
}
template <>
SAMESTATE_DEVICE Fp16 narrow<Fp16>(float x) {
  Fp16 y;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
  return y;
}
/// c += A B as multiply_bf16, fp16 operands.
SAMESTATE_DEVICE void multiply_fp16(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                                    std::uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
#else
inline float widen(Fp16 x) { return float_of(x); }
template <>
inline Fp16 narrow<Fp16>(float x) {
  return fp16_of(x);
}
/// The sums of multiply_bf16: 16 products and the accumulator are added exactly, then truncated to fp32.
inline void multiply_fp16(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1) {
  const auto word = [](std::uint32_t low, std::uint32_t high) {
    return low | (static_cast<std::uint64_t>(high) << 32);
  };
  const auto& table = emulation::exchange({word(a[0], a[1]), word(a[2], a[3]), word(b0, b1)});
  const auto half = [](std::uint64_t words, int register_index, int e) {
    const std::uint32_t bits = static_cast<std::uint32_t>(words >> (32 * register_index)) >> (16 * e);
    return static_cast<double>(float_of(Fp16{static_cast<std::uint16_t>(bits)}));
  };
  const int lane = thread_index() % 32;
  for (int i = 0; i < 4; ++i) {
    const auto row = static_cast<std::size_t>(4 * (lane / 4));
    const auto column = static_cast<std::size_t>(4 * (2 * (lane % 4) + i % 2));
    double sum = static_cast<double>(c[i]);
    for (int k = 0; k < 16; ++k) {
      const auto of = static_cast<std::size_t>(k % 8 / 2);
      sum += half(table[row + of][static_cast<std::size_t>(k / 8)], i / 2, k % 2) *
             half(table[column + of][2], k / 8, k % 2);
    }
    c[i] = emulation::truncated(sum);
  }
}
#endif

/// A tile of two m16n8k16, as of bf16: ldmatrix moves 16 bits, whatever they mean.
template <>
struct Tile<Fp16> : Tile<Bf16> {
  template <Left left, Right right>
  SAMESTATE_DEVICE void multiply(const Fp16* a, int a_stride, const Fp16* b, int b_stride, int depth) {
    const int r = lane_index() % 8, i = lane_index() / 8;
    const auto* a_row =
        reinterpret_cast<const Bf16*>(left == Left::rows ? a + (r + 8 * (i % 2)) * a_stride + 8 * (i / 2)
                                                         : a + (r + 8 * (i / 2)) * a_stride + 8 * (i % 2));
    const auto* b_row =
        reinterpret_cast<const Bf16*>(right == Right::rows ? b + (r + 8 * (i % 2)) * b_stride + 8 * (i / 2)
                                                           : b + (r + 8 * (i / 2)) * b_stride + 8 * (i % 2));
    for (int k = 0; k < depth; k += 16) {
      std::uint32_t a_part[4], b_part[4];
      load_matrices<left == Left::transposed>(a_part, a_row + (left == Left::rows ? k : k * a_stride));
      load_matrices<right == Right::rows>(b_part, b_row + (right == Right::transposed ? k : k * b_stride));
      multiply_fp16(sum[0], a_part, b_part[0], b_part[1]);
      multiply_fp16(sum[1], a_part, b_part[2], b_part[3]);
    }
  }
};

}  // namespace samestate::cuda
