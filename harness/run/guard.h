#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

/// How the runners see what a kernel writes: buffers hold poison before a call, around them and where they
/// are outputs.
namespace samestate {

/// Elements before and after a buffer.
inline constexpr std::int64_t kGuard = 16;

/// A NaN that no arithmetic makes, so that an element still holding it was not written.
inline const float kPoison = std::bit_cast<float>(0x7fc5a5a5U);

/// What stands around every tensor, and in its gaps: a NaN of its own, so that an output that holds it was computed from
/// memory that is not the call's.
inline const float kOutside = std::bit_cast<float>(0x7fc3c3c3U);

/// Whether the bits are those of the NaN, of either sign: arithmetic keeps the rest of them.
[[nodiscard]] inline bool from_outside(float x) {
  return (std::bit_cast<std::uint32_t>(x) & 0x7fffffffU) == std::bit_cast<std::uint32_t>(kOutside);
}

[[nodiscard]] inline bool poisoned(float x) {
  return std::bit_cast<std::uint32_t>(x) == std::bit_cast<std::uint32_t>(kPoison);
}

/// What element i of an output holds before a call: kPoison, which no sum or product hides, or, since a
/// maximum or a test for NaN does, 2.9e38 or -2.9e38; half and a quarter each, in no order.
[[nodiscard]] inline float stale(std::int64_t i) {
  const std::uint64_t mixed = (static_cast<std::uint64_t>(i) + 1) * 0x9e3779b97f4a7c15U >> 62;
  return mixed < 2 ? kPoison : std::bit_cast<float>(mixed == 2 ? 0x7f5a5a5aU : 0xff5a5a5aU);
}

/// Makes kPoison of every element of an output, given from its first one on, that still is stale.
inline void mark_unwritten(std::span<float> output) {
  for (std::size_t i = 0; i < output.size(); ++i) {
    const float before = stale(static_cast<std::int64_t>(i));
    if (std::bit_cast<std::uint32_t>(output[i]) == std::bit_cast<std::uint32_t>(before)) output[i] = kPoison;
  }
}

}  // namespace samestate
