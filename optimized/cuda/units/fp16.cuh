#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <type_traits>

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
#else
inline float widen(Fp16 x) { return float_of(x); }
template <>
inline Fp16 narrow<Fp16>(float x) {
  return fp16_of(x);
}
#endif

/// Numbers of fp16 as sums of two of bf16, exactly: 8 of their 11 bits, and the rest.
struct Fp16Parts {
  std::uint32_t rest, leading;  ///< two numbers each, as the register that they come from

  SAMESTATE_DEVICE explicit Fp16Parts(std::uint32_t pair) {
    const float low = widen(Fp16{static_cast<std::uint16_t>(pair)});
    const float high = widen(Fp16{static_cast<std::uint16_t>(pair >> 16)});
    leading = narrow_pair(low, high);
    rest = narrow_pair(beyond(low, leading << 16), beyond(high, leading & 0xffff0000U));
  }

 private:
  /// x without its leading part; nothing of an infinity.
  static SAMESTATE_DEVICE float beyond(float x, std::uint32_t leading) {
    const float part = float_of(leading);
    return part == x ? 0.0F : x - part;
  }
};

/// A tile of two m16n8k16 of bf16, on which each operand in fp16 is the sum of two in bf16. The unit has a product for fp16
/// too, but does not normalise subnormal numbers before it aligns the products: a sum of small ones keeps some of its bits
/// only (measured on an H200).
template <>
struct Tile<Fp16> : Tile<Bf16> {
  /// The right operand may be in bf16 already.
  template <Left left, Right right, class B>
  SAMESTATE_DEVICE void multiply(const Fp16* a, int a_stride, const B* b, int b_stride, int depth) {
    const int r = lane_index() % 8, i = lane_index() / 8;
    const auto* a_row =
        reinterpret_cast<const Bf16*>(left == Left::rows ? a + (r + 8 * (i % 2)) * a_stride + 8 * (i / 2)
                                                         : a + (r + 8 * (i / 2)) * a_stride + 8 * (i % 2));
    const auto* b_row =
        reinterpret_cast<const Bf16*>(right == Right::rows ? b + (r + 8 * (i % 2)) * b_stride + 8 * (i / 2)
                                                           : b + (r + 8 * (i / 2)) * b_stride + 8 * (i % 2));
    for (int k = 0; k < depth; k += 16) {
      std::uint32_t a_part[4], b_part[4], a_rest[4], b_rest[4];
      load_matrices<left == Left::transposed>(a_part, a_row + (left == Left::rows ? k : k * a_stride));
      load_matrices<right == Right::rows>(b_part, b_row + (right == Right::transposed ? k : k * b_stride));
      split(a_part, a_rest);
      if constexpr (std::is_same_v<B, Fp16>) {
        split(b_part, b_rest);
        add(a_rest, b_rest);  // the least first
        add(a_part, b_rest);
      }
      add(a_rest, b_part);
      add(a_part, b_part);
    }
  }

 private:
  static SAMESTATE_DEVICE void split(std::uint32_t (&pairs)[4], std::uint32_t (&rest)[4]) {
    SAMESTATE_UNROLL
    for (int n = 0; n < 4; ++n) {
      const Fp16Parts parts(pairs[n]);
      pairs[n] = parts.leading, rest[n] = parts.rest;
    }
  }
  SAMESTATE_DEVICE void add(const std::uint32_t (&a)[4], const std::uint32_t (&b)[4]) {
    multiply_bf16(sum[0], a, b[0], b[1]);
    multiply_bf16(sum[1], a, b[2], b[3]);
  }
};

}  // namespace samestate::cuda
