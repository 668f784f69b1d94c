#pragma once

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "optimized/cuda/units/emulated_block.h"

/// The functions of intrinsics.cuh on the host: a block is a team of threads, and a warp is 32 threads that
/// meet in a table of words. It is slow on purpose: it runs the kernels' own source without a device, and a
/// thread or address sanitizer then sees their races and overruns.
#define SAMESTATE_DEVICE inline
#define SAMESTATE_HOST_DEVICE
#define SAMESTATE_UNROLL
#define SAMESTATE_NO_UNROLL

namespace samestate::cuda {

struct Bf16 {
  std::uint16_t bits;
};
struct Pair {
  float x, y;
};
struct Quad {
  float x, y, z, w;
};

namespace emulation {

/// Accesses to global memory before wait_for_grids_before(), which under a programmatic launch race with the
/// preceding grids; a sanitizer of one block cannot see that. A test sets the counter to zero and reads it.
inline std::atomic<long> accesses_before_wait{0};
inline void count_access() { accesses_before_wait += self().waited ? 0 : 1; }

inline float from_bits(std::uint32_t bits) {
  float x;
  std::memcpy(&x, &bits, sizeof x);
  return x;
}
inline std::uint32_t to_bits(float x) {
  std::uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  return bits;
}

inline void copy_async(void* to, const void* from, std::size_t bytes) {
  if ((reinterpret_cast<std::uintptr_t>(to) | reinterpret_cast<std::uintptr_t>(from)) % bytes != 0)
    fail("a copy of " + std::to_string(bytes) + " bytes to or from an address that is no multiple of them");
  if (!self().block->late)
    std::memcpy(to, from, bytes);
  else
    self().copies.push_back({to, from, bytes, self().copy_groups});
}

/// Completes those of this thread that belong to groups before `end`.
inline void land(int end) {
  std::vector<Copy>& copies = self().copies;
  const auto landed = std::stable_partition(copies.begin(), copies.end(),
                                            [&](const Copy& copy) { return copy.group >= end; });
  for (auto copy = landed; copy != copies.end(); ++copy) std::memcpy(copy->to, copy->from, copy->bytes);
  copies.erase(landed, copies.end());
}

/// Rounds toward zero, as the model of the tensor core (BOUNDS 2) does with the sum of a block.
inline float truncated(double x) {
  const float y = static_cast<float>(x);
  return std::fabs(static_cast<double>(y)) > std::fabs(x) ? std::nextafterf(y, 0.0F) : y;
}

}  // namespace emulation

inline int thread_index() { return emulation::self().index; }
inline int block_threads() { return emulation::self().block->size; }
inline void block_barrier() { emulation::meet_at(emulation::self().block->meet); }
inline void warp_barrier() { emulation::exchange({}); }

inline float shuffle(float x, int source_lane) {
  const auto& table = emulation::exchange({emulation::to_bits(x)});
  return emulation::from_bits(static_cast<std::uint32_t>(table[static_cast<std::size_t>(source_lane)][0]));
}
inline float shuffle_xor(float x, int mask) { return shuffle(x, (thread_index() % 32) ^ mask); }

inline float fused(float a, float b, float c) { return std::fmaf(a, b, c); }
inline float inverse_root(float x) { return 1.0F / std::sqrt(x); }
inline float exponential(float x) { return static_cast<float>(std::exp(static_cast<double>(x))); }
inline float exponential2(float y) {
  const float power = static_cast<float>(std::exp2(static_cast<double>(y)));
  return power < std::numeric_limits<float>::min() ? 0.0F : power;
}

inline float widen(float x) { return x; }
inline float widen(Bf16 x) { return emulation::from_bits(static_cast<std::uint32_t>(x.bits) << 16); }

template <class Operand>
Operand narrow(float x);
template <>
inline float narrow<float>(float x) {
  return x;
}
template <>
inline Bf16 narrow<Bf16>(float x) {
  const std::uint32_t bits = emulation::to_bits(x);
  if (std::isnan(x)) return {0x7fff};
  return {static_cast<std::uint16_t>((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16)};
}

inline std::uint32_t narrow_pair(float low, float high) {
  return narrow<Bf16>(low).bits | static_cast<std::uint32_t>(narrow<Bf16>(high).bits) << 16;
}
inline float float_of(std::uint32_t bits) { return emulation::from_bits(bits); }
inline std::uint32_t bits_of(float x) { return emulation::to_bits(x); }

inline Pair load_pair(const float* from) { return {from[0], from[1]}; }
inline Quad load_quad(const float* from) { return {from[0], from[1], from[2], from[3]}; }
inline void store_pair(float* to, float x, float y) { to[0] = x, to[1] = y; }

inline void wait_for_grids_before() { emulation::self().waited = true; }
inline void let_next_grid_start() {}
template <class T>
T recomputed(T x) {
  return x;
}

template <class T>
T load_global(const T* from) {
  emulation::count_access();
  return *from;
}
template <class T>
void store_global(T* to, const T& value) {
  emulation::count_access();
  *to = value;
}
template <bool once, class T>
T load_settled(const T* from, bool wanted) {
  if (wanted) emulation::count_access();  // the access counts even if the caller knows it to be settled
  return wanted ? *from : T{};
}
template <bool once, class T>
void store_result(T* to, const T& value) {
  emulation::count_access();
  *to = value;
}
inline float fast_inverse_root(float x) { return inverse_root(x); }

inline void copy_async_16(void* to, const void* from) { emulation::copy_async(to, from, 16); }
inline void copy_wait() { emulation::land(emulation::self().copy_groups + 1); }
inline void copies_commit() { ++emulation::self().copy_groups; }
template <int left>
void copies_wait() {
  emulation::land(emulation::self().copy_groups - left);
}

template <bool transposed>
void load_matrices(std::uint32_t (&r)[4], const Bf16* row) {
  const auto& table = emulation::exchange({reinterpret_cast<std::uintptr_t>(row)});
  const int lane = thread_index() % 32;
  for (int i = 0; i < 4; ++i) {
    r[i] = 0;
    for (int e = 0; e < 2; ++e) {
      const int at_row = transposed ? 2 * (lane % 4) + e : lane / 4;
      const int at_column = transposed ? lane / 4 : 2 * (lane % 4) + e;
      const auto* address = reinterpret_cast<const Bf16*>(
          static_cast<std::uintptr_t>(table[static_cast<std::size_t>(8 * i + at_row)][0]));
      r[i] |= static_cast<std::uint32_t>(address[at_column].bits) << (16 * e);
    }
  }
}

inline void load_matrices(std::uint32_t (&r)[4], const float* row) {
  const auto& table = emulation::exchange({reinterpret_cast<std::uintptr_t>(row)});
  const int lane = thread_index() % 32;
  for (int i = 0; i < 4; ++i) {
    const auto address = static_cast<std::uintptr_t>(table[static_cast<std::size_t>(8 * i + lane / 4)][0]);
    r[i] = emulation::to_bits(reinterpret_cast<const float*>(address)[lane % 4]);
  }
}

/// The sums of BOUNDS 2: 16 products and the accumulator are added exactly, then truncated to fp32.
inline void multiply_bf16(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1) {
  const auto word = [](std::uint32_t low, std::uint32_t high) {
    return low | (static_cast<std::uint64_t>(high) << 32);
  };
  const auto& table = emulation::exchange({word(a[0], a[1]), word(a[2], a[3]), word(b0, b1)});
  const auto half = [](std::uint64_t words, int register_index, int e) {
    const std::uint32_t bits = static_cast<std::uint32_t>(words >> (32 * register_index)) >> (16 * e);
    return static_cast<double>(widen(Bf16{static_cast<std::uint16_t>(bits)}));
  };
  const int lane = thread_index() % 32;
  for (int i = 0; i < 4; ++i) {
    const int row_group = lane / 4;               // row of A: row_group + 8 (i / 2)
    const int column = 2 * (lane % 4) + (i % 2);  // column of B
    double sum = static_cast<double>(c[i]);
    for (int k = 0; k < 16; ++k) {
      const std::uint64_t a_words =
          table[static_cast<std::size_t>(4 * row_group + (k % 8) / 2)][static_cast<std::size_t>(k / 8)];
      const std::uint64_t b_words = table[static_cast<std::size_t>(4 * column + (k % 8) / 2)][2];
      sum += half(a_words, i / 2, k % 2) * half(b_words, k / 8, k % 2);
    }
    c[i] = emulation::truncated(sum);
  }
}

inline std::uint32_t tf32(float x) { return emulation::to_bits(x) + 0x1000U; }
inline std::uint32_t tf32_even(float x) {
  const std::uint32_t bits = emulation::to_bits(x);
  if ((bits & 0x7f800000U) == 0x7f800000U) return bits;
  return (bits + 0xfffU + ((bits >> 13) & 1U)) & 0xffffe000U;
}

/// tf32: the low 13 bits of an operand are not read; 8 products and the accumulator are added in one block.
inline void multiply_tf32(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1) {
  const auto word = [](std::uint32_t low, std::uint32_t high) {
    return low | (static_cast<std::uint64_t>(high) << 32);
  };
  const auto& table = emulation::exchange({word(a[0], a[1]), word(a[2], a[3]), word(b0, b1)});
  const auto value = [](std::uint64_t words, int register_index) {
    const auto bits = static_cast<std::uint32_t>(words >> (32 * register_index));
    return static_cast<double>(emulation::from_bits(bits & 0xffffe000U));
  };
  const int lane = thread_index() % 32;
  for (int i = 0; i < 4; ++i) {
    const int column = 2 * (lane % 4) + (i % 2);
    double sum = static_cast<double>(c[i]);
    for (int k = 0; k < 8; ++k) {
      const auto& a_lane = table[static_cast<std::size_t>(4 * (lane / 4) + k % 4)];
      const auto& b_lane = table[static_cast<std::size_t>(4 * column + k % 4)];
      sum += value(a_lane[static_cast<std::size_t>(k / 4)], i / 2) * value(b_lane[2], k / 4);
    }
    c[i] = emulation::truncated(sum);
  }
}
inline void multiply_tf32_if(bool there, float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                             std::uint32_t b1) {
  if (there) multiply_tf32(c, a, b0, b1);
}

}  // namespace samestate::cuda
