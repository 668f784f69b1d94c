#pragma once

#include <cstdint>
#include <cstring>

/// Eight fp32 values in one vector register. Sums that use them fuse multiply and add explicitly, because the
/// build forbids the compiler to do it on its own: every build gives the same bits.
namespace samestate::cpu {

inline constexpr std::int64_t kLanes = 8;
using Lanes [[gnu::vector_size(kLanes * sizeof(float))]] = float;

// Lanes are passed by reference, because by value their ABI depends on -march.
inline void load(Lanes& x, const float* from) { std::memcpy(&x, from, sizeof x); }

inline void store(float* to, const Lanes& x) { std::memcpy(to, &x, sizeof x); }

inline void splat(Lanes& x, float value) {
  x = Lanes{value, value, value, value, value, value, value, value};
}

/// sum <- x y + sum, rounded once.
inline void fuse(Lanes& sum, const Lanes& x, const Lanes& y) {
  Lanes fused;
  for (int i = 0; i < kLanes; ++i) fused[i] = __builtin_fmaf(x[i], y[i], sum[i]);
  sum = fused;
}

/// count rounded up to a multiple of `step`.
[[nodiscard]] constexpr std::int64_t round_up(std::int64_t count, std::int64_t step) {
  return (count + step - 1) / step * step;
}

}  // namespace samestate::cpu
