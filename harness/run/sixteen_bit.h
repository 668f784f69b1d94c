#pragma once

#include <Eigen/Core>
#include <bit>
#include <cstdint>

#include "optimized/call_tensor.h"
#include "reference/contract.h"

/// Elements of 16 bits, where a kernel's tensors have them.
namespace samestate {

/// Returns the bits that outputs of 16 bits contain before a call.
[[nodiscard]] constexpr std::uint16_t stale_bits(Dtype dtype) {
  return dtype == Dtype::bf16 ? std::uint16_t{0x7fc5} : std::uint16_t{0x7e5a};
}

/// The nearest number of the format, ties to even.
[[nodiscard]] inline std::uint16_t bits_of(float x, Dtype dtype) {
  return dtype == Dtype::bf16 ? Eigen::bfloat16_impl::float_to_bfloat16_rtne<false>(x).value
                              : Eigen::half_impl::float_to_half_rtne(x).x;
}

[[nodiscard]] inline float value_of(std::uint16_t bits, Dtype dtype) {
  if (dtype == Dtype::bf16) return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16U);
  return Eigen::half_impl::half_to_float(Eigen::half_impl::raw_uint16_to_half(bits));
}

[[nodiscard]] constexpr Dtype dtype_of(Format format) {
  return format == Format::bf16 ? Dtype::bf16 : format == Format::fp16 ? Dtype::fp16 : Dtype::fp32;
}

}  // namespace samestate
