#pragma once

#include <bit>
#include <cstdint>

/// How the runners see what a kernel writes: buffers hold poison before a call, around them and where they
/// are outputs.
namespace samestate {

/// Elements before and after a buffer.
inline constexpr std::int64_t kGuard = 16;

/// A NaN that no arithmetic makes, so that an element still holding it was not written.
inline const float kPoison = std::bit_cast<float>(0x7fc5a5a5U);

[[nodiscard]] inline bool poisoned(float x) {
  return std::bit_cast<std::uint32_t>(x) == std::bit_cast<std::uint32_t>(kPoison);
}

}  // namespace samestate
