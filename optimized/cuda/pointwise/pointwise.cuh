#pragma once

#include <cmath>
#include <cstdint>

#include "optimized/cuda/units/intrinsics.cuh"

/// Functions of a single element: activations, and the gates of the Gated DeltaNet.
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
/// e^x for a result that is rounded to Operand: of 16 bits by the special function unit, an error of (2 + |x|) 2^-23 at worst.
template <class Operand>
SAMESTATE_DEVICE float exponential_for(float x) {
  if constexpr (sizeof(Operand) == 4) return exponential(x);
  return exponential2(1.4426950408889634F * x);
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

/// The same for a 16-bit result: a third of the instructions, with an error of at most (4 + |x|) 2^-23.
template <class Operand>
SAMESTATE_DEVICE float softplus_for(float x) {
  if constexpr (sizeof(Operand) == 4) return softplus(x);
  const float y = exponential_for<Operand>(x < 0.0F ? x : -x);
  // log(1 + y) / y on [0, 1] by Chebyshev's points, within 2^-24.8.
  constexpr float kLog[] = {0.999999966F,  -0.49999445F,  0.333181217F,   -0.24835399F,  0.190768807F,
                            -0.136022476F, 0.0775160868F, -0.0290740647F, 0.00512610214F};
  float of_y = kLog[8];
  SAMESTATE_UNROLL
  for (int i = 7; i >= 0; --i) of_y = fused(of_y, y, kLog[i]);
  return fused(y, of_y, x > 0.0F ? x : 0.0F);
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

/// 1 / (1 + e^-x) as the contract of the operand format has its exponentials (intrinsics.cuh, decay).
template <class Operand>
SAMESTATE_DEVICE float logistic_for(float x) {
  if constexpr (sizeof(Operand) == 4) {
    return logistic(x);
  } else {
    return fast_inverse(1.0F + exponential2(-1.4426950408889634F * x));
  }
}

/// n adjacent heads of kTokens tokens, n of which divides the heads: their rates are computed once, and all loads are under way
/// before the first result is stored.
template <class Operand, int n>
struct GateItem {
  using Parameters = GateParameters<Operand>;
  using Elements = Vector<Operand, n>;
  static constexpr int kTokens = 4;

  static SAMESTATE_HOST_DEVICE std::int64_t tokens(const Parameters& p) { return p.elements / p.heads; }
  /// The tokens of an item are so far apart: neighbouring threads have neighbouring heads and tokens.
  static SAMESTATE_HOST_DEVICE std::int64_t apart(const Parameters& p) {
    return (tokens(p) + kTokens - 1) / kTokens;
  }
  static SAMESTATE_HOST_DEVICE std::int64_t items(const Parameters& p) { return apart(p) * (p.heads / n); }

  static SAMESTATE_DEVICE void run(const Parameters& p, std::int64_t item) {
    const int groups = p.heads / n;
    const std::int64_t first = quotient(item, groups);
    const auto head = static_cast<int>(item - first * groups) * n;
    const std::int64_t step = apart(p), all = tokens(p);
    Elements a[kTokens]{}, b[kTokens]{};
    SAMESTATE_UNROLL
    for (int j = 0; j < kTokens; ++j) {
      const std::int64_t at = (first + j * step) * p.heads + head;
      if (first + j * step < all) a[j] = load(p.a + at), b[j] = load(p.b + at);
    }
    float rate[n], bias[n];
    SAMESTATE_UNROLL
    for (int i = 0; i < n; ++i) rate[i] = -exponential(p.A_log[head + i]), bias[i] = p.dt_bias[head + i];
    SAMESTATE_UNROLL
    for (int j = 0; j < kTokens; ++j) {
      const std::int64_t at = (first + j * step) * p.heads + head;
      if (first + j * step >= all) break;
      float g[n], beta[n];
      SAMESTATE_UNROLL
      for (int i = 0; i < n; ++i) {
        g[i] = rate[i] * softplus_for<Operand>(element(a[j], i) + bias[i]);
        beta[i] = logistic_for<Operand>(element(b[j], i));
      }
      *reinterpret_cast<Elements*>(p.g + at) = narrowed<Operand>(g);
      *reinterpret_cast<Elements*>(p.beta + at) = narrowed<Operand>(beta);
    }
  }

 private:
  static SAMESTATE_DEVICE Elements load(const Operand* from) {
    return *reinterpret_cast<const Elements*>(from);
  }
};

}  // namespace samestate::cuda
