#pragma once

#include <cstdint>
#include <type_traits>

/// Everything that a kernel asks of the machine: thread positions, barriers, shuffles, asynchronous copies,
/// matrix units, exponentials. Kernels call these names and nothing below them, so that a block can also be
/// executed by threads of the host (emulation.h), which is how it is tested without a device.
#ifndef __CUDACC__
#include "optimized/cuda/units/emulation.h"
#else
#include <cuda_runtime.h>

#define SAMESTATE_DEVICE __device__ __forceinline__
#define SAMESTATE_HOST_DEVICE __host__ __device__
#define SAMESTATE_UNROLL _Pragma("unroll")
#define SAMESTATE_NO_UNROLL _Pragma("unroll 1")

namespace samestate::cuda {

/// bfloat16 as stored: the upper half of an fp32.
struct Bf16 {
  std::uint16_t bits;
};

/// 8 and 16 bytes of shared memory read at once.
using Pair = float2;
using Quad = float4;

SAMESTATE_DEVICE int thread_index() { return static_cast<int>(threadIdx.x); }
SAMESTATE_DEVICE int block_threads() { return static_cast<int>(blockDim.x); }
SAMESTATE_DEVICE void block_barrier() { __syncthreads(); }
SAMESTATE_DEVICE void warp_barrier() { __syncwarp(); }

SAMESTATE_DEVICE float shuffle(float x, int source_lane) { return __shfl_sync(0xffffffffU, x, source_lane); }
SAMESTATE_DEVICE float shuffle_xor(float x, int mask) { return __shfl_xor_sync(0xffffffffU, x, mask); }

SAMESTATE_DEVICE float fused(float a, float b, float c) { return __fmaf_rn(a, b, c); }
SAMESTATE_DEVICE float inverse_root(float x) { return __fdiv_rn(1.0F, __fsqrt_rn(x)); }

/// e^x within one ulp.
SAMESTATE_DEVICE float exponential(float x) { return expf(x); }

/// 2^y by the special function unit, subnormal results flushed to zero.
SAMESTATE_DEVICE float exponential2(float y) {
  float power;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(y));
  return power;
}

SAMESTATE_DEVICE float widen(float x) { return x; }
SAMESTATE_DEVICE float widen(Bf16 x) { return __uint_as_float(static_cast<std::uint32_t>(x.bits) << 16); }

/// Round to nearest even into the operand format.
template <class Operand>
SAMESTATE_DEVICE Operand narrow(float x);
template <>
SAMESTATE_DEVICE float narrow<float>(float x) {
  return x;
}
template <>
SAMESTATE_DEVICE Bf16 narrow<Bf16>(float x) {
  Bf16 y;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
  return y;
}

/// Two neighbours rounded to nearest even, `low` first in memory.
SAMESTATE_DEVICE std::uint32_t narrow_pair(float low, float high) {
  std::uint32_t word;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
  return word;
}
SAMESTATE_DEVICE float float_of(std::uint32_t bits) { return __uint_as_float(bits); }
SAMESTATE_DEVICE std::uint32_t bits_of(float x) { return __float_as_uint(x); }

SAMESTATE_DEVICE Pair load_pair(const float* from) { return *reinterpret_cast<const float2*>(from); }
SAMESTATE_DEVICE Quad load_quad(const float* from) { return *reinterpret_cast<const float4*>(from); }
SAMESTATE_DEVICE void store_pair(float* to, float x, float y) {
  *reinterpret_cast<float2*>(to) = make_float2(x, y);
}

SAMESTATE_DEVICE std::uint32_t shared_address(const void* pointer) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(pointer));
}

/// Waits until the grids launched before this one have ended and their memory is seen; returns at once where
/// the launch was not programmatic.
SAMESTATE_DEVICE void wait_for_grids_before() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

/// Lets the next grid of the stream start, once every block has said so or ended.
SAMESTATE_DEVICE void let_next_grid_start() {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

/// x, of which the compiler does not know that it had it before: what follows from it is computed again
/// instead of kept in registers.
template <class T>
SAMESTATE_DEVICE T recomputed(T x) {
  asm volatile("" : "+r"(x));
  return x;
}

/// Global memory that a grid before this one may have written: after wait_for_grids_before().
template <class T>
SAMESTATE_DEVICE T load_global(const T* from) {
  return *from;
}
template <class T>
SAMESTATE_DEVICE void store_global(T* to, const T& value) {
  *to = value;
}

/// 16 bytes of global memory that no grid still running writes, which may be read at once; zeros where not
/// `wanted`, without a branch. `once`: they will not be read again.
template <bool once, class T>
SAMESTATE_DEVICE T load_settled(const T* from, bool wanted) {
  static_assert(sizeof(T) == 16, "one access of 16 bytes");
  uint4 words{};
  if constexpr (once) {
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.b32 p, %5, 0;\n@p ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, "
        "[%4];\n}"
        : "+r"(words.x), "+r"(words.y), "+r"(words.z), "+r"(words.w)
        : "l"(from), "r"(static_cast<int>(wanted)));
  } else {
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %5, 0;\n@p ld.global.v4.u32 {%0, %1, %2, %3}, [%4];\n}"
                 : "+r"(words.x), "+r"(words.y), "+r"(words.z), "+r"(words.w)
                 : "l"(from), "r"(static_cast<int>(wanted)));
  }
  return __builtin_bit_cast(T, words);
}

/// `once`: it will not be read soon, and leaves the cache first.
template <bool once, class T>
SAMESTATE_DEVICE void store_result(T* to, const T& value) {
  if constexpr (once && sizeof(T) == 16) {
    __stcs(reinterpret_cast<uint4*>(to), __builtin_bit_cast(uint4, value));
  } else {
    *to = value;
  }
}

/// x^-1/2 by the special function unit, x a normal number or infinite: relative error at most 2^-22.9.
SAMESTATE_DEVICE float fast_inverse_root(float x) {
  float root;
  asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(root) : "f"(x));
  return root;
}

/// 16 bytes from global to shared memory, both 16-byte aligned; there after copy_wait() and a barrier.
SAMESTATE_DEVICE void copy_async_16(void* to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(to)), "l"(from) : "memory");
}
SAMESTATE_DEVICE void copy_wait() { asm volatile("cp.async.wait_all;" ::: "memory"); }
/// This thread's copies since the last commit become a group; copies_wait waits for all groups but the newest `left`.
SAMESTATE_DEVICE void copies_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int left>
SAMESTATE_DEVICE void copies_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(left) : "memory");
}

/// Four 8 x 8 matrices of 16-bit elements: lane 8 i + r passes the address of row r of matrix i, 16-byte
/// aligned. Register i of lane l receives elements (l / 4, 2 (l % 4) + {0, 1}) of matrix i, or of its
/// transpose.
template <bool transposed>
SAMESTATE_DEVICE void load_matrices(std::uint32_t (&r)[4], const Bf16* row) {
  if constexpr (transposed) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(row))
                 : "memory");
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(row))
                 : "memory");
  }
}

/// Four 8 x 4 matrices of fp32: lane 8 i + r passes the address of row r of matrix i, 16-byte aligned. Register i of lane
/// l receives the bits of element (l / 4, l % 4) of matrix i.
SAMESTATE_DEVICE void load_matrices(std::uint32_t (&r)[4], const float* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(row))
               : "memory");
}

/// c += A B, m16n8k16, bf16 operands, fp32 sums. c[2 i + e] is element (l / 4 + 8 i, 2 (l % 4) + e) of lane
/// l.
SAMESTATE_DEVICE void multiply_bf16(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                                    std::uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/// fp32 to the nearest tf32, ties away from zero: the unit does not read the low 13 bits.
SAMESTATE_DEVICE std::uint32_t tf32(float x) { return __float_as_uint(x) + 0x1000U; }
/// The same, ties to even: the bits of a number that is in tf32.
SAMESTATE_DEVICE std::uint32_t tf32_even(float x) {
  std::uint32_t bits;
  asm("cvt.rn.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
  return bits;
}

/// c += A B, m16n8k8, tf32 operands (fp32 bits whose low 13 the unit does not read), fp32 sums.
SAMESTATE_DEVICE void multiply_tf32(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                                    std::uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
/// Where `there`, the same in the whole warp; without a branch.
SAMESTATE_DEVICE void multiply_tf32_if(bool there, float (&c)[4], const std::uint32_t (&a)[4],
                                       std::uint32_t b0, std::uint32_t b1) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %10, 0;\n"
      "@p mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};\n}\n"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "r"(static_cast<int>(there)));
}

}  // namespace samestate::cuda
#endif

namespace samestate::cuda {

SAMESTATE_DEVICE int lane_index() { return thread_index() % 32; }
SAMESTATE_DEVICE int warp_index() { return thread_index() / 32; }
SAMESTATE_DEVICE int block_warps() { return block_threads() / 32; }

/// `n` adjacent elements as stored, moved by one access and kept in as many registers.
template <class T, int n>
struct alignas(sizeof(T) * n) Vector {
  static constexpr int kBytes = static_cast<int>(sizeof(T)) * n;
  static_assert(kBytes == 2 || kBytes == 4 || kBytes == 8 || kBytes == 16, "what one access moves");
  using Word = std::conditional_t<kBytes == 2, std::uint16_t, std::uint32_t>;
  Word words[kBytes < 4 ? 1 : kBytes / 4];
};

template <int n>
SAMESTATE_DEVICE float element(const Vector<float, n>& x, int i) {
  return float_of(x.words[i]);
}
template <int n>
SAMESTATE_DEVICE float element(const Vector<Bf16, n>& x, int i) {
  if constexpr (n == 1) return float_of(static_cast<std::uint32_t>(x.words[0]) << 16);
  return float_of(i % 2 == 0 ? x.words[i / 2] << 16 : x.words[i / 2] & 0xffff0000U);
}

/// Values as they are stored: rounded to nearest even where T is bf16.
template <class T, int n>
SAMESTATE_DEVICE Vector<T, n> narrowed(const float (&x)[n]) {
  Vector<T, n> y;
  SAMESTATE_UNROLL
  for (int i = 0; i < n; i += 4 / static_cast<int>(sizeof(T))) {
    if constexpr (sizeof(T) == 4) {
      y.words[i] = bits_of(x[i]);
    } else if constexpr (n == 1) {
      y.words[0] = narrow<T>(x[0]).bits;
    } else {
      y.words[i / 2] = narrow_pair(x[i], x[i + 1]);
    }
  }
  return y;
}

/// Keeps the values as stored and widens them again where they are used, so that their fp32 forms take no
/// registers.
template <class T, int n>
SAMESTATE_DEVICE void keep_as_stored(Vector<T, n>& x) {
  if constexpr (sizeof(T) * n >= 4) {
    SAMESTATE_UNROLL
    for (std::uint32_t& word : x.words) word = recomputed(word);
  }
}

/// The sum over the lanes of a warp, in every lane.
SAMESTATE_DEVICE float warp_sum(float x) {
  SAMESTATE_UNROLL
  for (int mask = 16; mask > 0; mask /= 2) x += shuffle_xor(x, mask);
  return x;
}

/// e^x, x <= 0, as the contract of the operand format has it: expf with fp32 operands; 2^(x log2 e), the
/// product rounded to fp32, with bf16 operands.
template <class Operand>
SAMESTATE_DEVICE float decay(float x);
template <>
SAMESTATE_DEVICE float decay<float>(float x) {
  return exponential(x);
}
template <>
SAMESTATE_DEVICE float decay<Bf16>(float x) {
  return exponential2(x * 1.4426950408889634F);
}

}  // namespace samestate::cuda
