#pragma once

#include <cstdint>

#include "optimized/cuda/pointwise/pointwise.cuh"

/// RetNet's rotation of q and k (EQUATIONS 5.11): pair i of a head, columns 2 i and 2 i + 1, turns by p 10000^{-i / (pairs - 1)} at
/// position p; k is scaled before.
namespace samestate::cuda {

template <class Operand>
struct RetentionRotationParameters {
  const Operand* q = nullptr;  ///< [batch, tokens, heads, width], and k
  const Operand* k = nullptr;
  const float* position = nullptr;  ///< [batch] of the first token
  Operand* turned_q = nullptr;
  Operand* turned_k = nullptr;
  float* next_position = nullptr;  ///< [batch]
  std::int64_t batch = 0;
  std::int64_t tokens = 0;
  int heads = 1;
  int width = 2;
  float scale = 1.0F;  ///< scale of k

  [[nodiscard]] SAMESTATE_HOST_DEVICE int pairs() const { return width / 2; }
};

/// A pair of all heads of a token, whose angle it is; the first of them count the tokens.
template <class Operand>
struct RetentionPair {
  using Parameters = RetentionRotationParameters<Operand>;
  static SAMESTATE_HOST_DEVICE std::int64_t items(const Parameters& p) {
    const std::int64_t angles = p.batch * p.tokens * p.pairs();
    return angles > p.batch ? angles : p.batch;
  }
  static SAMESTATE_DEVICE void run(const Parameters& p, std::int64_t item) {
    if (item < p.batch) p.next_position[item] = p.position[item] + static_cast<float>(p.tokens);
    const std::int64_t row = quotient(item, p.pairs());
    if (row >= p.batch * p.tokens) return;
    const auto pair = static_cast<int>(item - row * p.pairs());
    const std::int64_t sequence = quotient(row, p.tokens);
    const std::int64_t token = row - sequence * p.tokens;
    const auto first = static_cast<std::int64_t>(p.position[sequence]);
    constexpr float kLogTheta = 9.210340371976184F;  // log 10000
    const float exponent =
        p.pairs() > 1 ? static_cast<float>(pair) / static_cast<float>(p.pairs() - 1) : 0.0F;
    float sine, cosine;
    sine_and_cosine(static_cast<float>(first + token) * exponential(-exponent * kLogTheta), sine, cosine);
    for (int h = 0; h < p.heads; ++h) {
      const std::int64_t at = (row * p.heads + h) * p.width + 2 * pair;
      turn(p.q + at, p.turned_q + at, 1.0F, sine, cosine);
      turn(p.k + at, p.turned_k + at, p.scale, sine, cosine);
    }
  }

 private:
  static SAMESTATE_DEVICE void turn(const Operand* x, Operand* y, float scale, float sine, float cosine) {
    const auto two = *reinterpret_cast<const Vector<Operand, 2>*>(x);
    const float a = element(two, 0) * scale, b = element(two, 1) * scale;
    const float turned[2] = {fused(-b, sine, a * cosine), fused(a, sine, b * cosine)};
    *reinterpret_cast<Vector<Operand, 2>*>(y) = narrowed<Operand>(turned);
  }
};

}  // namespace samestate::cuda
