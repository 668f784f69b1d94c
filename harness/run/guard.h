#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

/// How the runners detect what a kernel writes: before a call, outputs and the memory around all buffers are
/// filled with poison.
namespace samestate {

/// Elements before and after a buffer.
inline constexpr std::int64_t kGuard = 16;

/// A NaN that no arithmetic produces: an element that still holds it was not written.
inline const float kPoison = std::bit_cast<float>(0x7fc5a5a5U);

/// The content of the memory around every tensor, and in its gaps: a distinct NaN, so that an output that
/// holds it was computed from memory that does not belong to the call.
inline const float kOutside = std::bit_cast<float>(0x7fc3c3c3U);

/// True if the bits are those of that NaN, with either sign: arithmetic preserves the rest of them.
[[nodiscard]] inline bool from_outside(float x) {
  return (std::bit_cast<std::uint32_t>(x) & 0x7fffffffU) == std::bit_cast<std::uint32_t>(kOutside);
}

[[nodiscard]] inline bool poisoned(float x) {
  return std::bit_cast<std::uint32_t>(x) == std::bit_cast<std::uint32_t>(kPoison);
}

/// The content of element i of an output before a call: kPoison, which no sum or product hides, or, because a
/// maximum or a test for NaN does hide it, 2.9e38 or -2.9e38; half of the elements and a quarter each, in
/// irregular order.
[[nodiscard]] inline float stale(std::int64_t i) {
  const std::uint64_t mixed = (static_cast<std::uint64_t>(i) + 1) * 0x9e3779b97f4a7c15U >> 62;
  return mixed < 2 ? kPoison : std::bit_cast<float>(mixed == 2 ? 0x7f5a5a5aU : 0xff5a5a5aU);
}

/// Replaces every element of an output that is still stale by kPoison; `output` must start at its first
/// element.
inline void mark_unwritten(std::span<float> output) {
  for (std::size_t i = 0; i < output.size(); ++i) {
    const float before = stale(static_cast<std::int64_t>(i));
    if (std::bit_cast<std::uint32_t>(output[i]) == std::bit_cast<std::uint32_t>(before)) output[i] = kPoison;
  }
}

}  // namespace samestate
