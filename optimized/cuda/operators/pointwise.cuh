#pragma once

#include <cmath>
#include <cstdint>

#include "optimized/cuda/intrinsics.cuh"

/// What needs no other element: activations, and the gates of the Gated DeltaNet.
namespace samestate::cuda {

/// a / b of numbers that are not negative: in 32 bits, a third of the instructions, where both fit.
SAMESTATE_DEVICE std::int64_t quotient(std::int64_t a, std::int64_t b) {
  if (((a | b) >> 32) == 0) return static_cast<std::uint32_t>(a) / static_cast<std::uint32_t>(b);
  return a / b;
}

/// log(1 + x) within two ulp.
SAMESTATE_DEVICE float logarithm_1p(float x) {
#ifdef __CUDACC__
  return log1pf(x);
#else
  return static_cast<float>(std::log1p(static_cast<double>(x)));
#endif
}

/// 1 / x by the special function unit, x a normal number or infinite, within two ulp.
SAMESTATE_DEVICE float fast_inverse(float x) {
#ifdef __CUDACC__
  float inverse;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(x));
  return inverse;
#else
  return 1.0F / x;
#endif
}

SAMESTATE_DEVICE float logistic(float x) { return 1.0F / (1.0F + exponential(-x)); }
SAMESTATE_DEVICE float silu(float x) { return x / (1.0F + exponential(-x)); }

/// x sigmoid(x) for a result that is rounded to Operand. For one of 16 bits by the special function unit, an error of 2^-16
/// at worst: the other takes three times the instructions, and a kernel of memory waits for them.
template <class Operand>
SAMESTATE_DEVICE float silu_for(float x) {
  if constexpr (sizeof(Operand) == 4) {
    return silu(x);
  } else {
    constexpr float kLog2E = 1.4426950408889634F;
    return x * fast_inverse(1.0F + exponential2(-kLog2E * x));
  }
}
/// sin x and cos x within two ulp, x of any size.
SAMESTATE_DEVICE void sine_and_cosine(float x, float& sine, float& cosine) {
#ifdef __CUDACC__
  sincosf(x, &sine, &cosine);
#else
  sine = std::sin(x);
  cosine = std::cos(x);
#endif
}

/// log(1 + e^x), of either sign without overflow.
SAMESTATE_DEVICE float softplus(float x) {
  const float size = x < 0.0F ? -x : x;
  return (x > 0.0F ? x : 0.0F) + logarithm_1p(exponential(-size));
}

/// g = -exp(A_log) softplus(a + dt_bias), beta = logistic(b) (GDN-11, GDN-12).
template <class Operand>
struct GateParameters {
  const Operand* a = nullptr;  ///< [tokens, heads], and b
  const Operand* b = nullptr;
  const float* A_log = nullptr;  ///< [heads], and dt_bias
  const float* dt_bias = nullptr;
  Operand* g = nullptr;  ///< [tokens, heads], and beta
  Operand* beta = nullptr;
  std::int64_t elements = 0;
  int heads = 1;
};

template <class Operand>
SAMESTATE_DEVICE void gate(const GateParameters<Operand>& p, std::int64_t i) {
  if (i >= p.elements) return;
  const auto head = static_cast<int>(i % p.heads);
  const float rate = exponential(p.A_log[head]);
  p.g[i] = narrow<Operand>(-rate * softplus(widen(p.a[i]) + p.dt_bias[head]));
  p.beta[i] = narrow<Operand>(logistic(widen(p.b[i])));
}

}  // namespace samestate::cuda
