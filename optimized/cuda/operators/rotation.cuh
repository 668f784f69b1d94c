#pragma once

#include <cstdint>

#include "optimized/cuda/intrinsics.cuh"

/// The rotary embedding (CFG-10, EQUATIONS 5.7): (x_i, x_j) -> (x_i cos - x_j sin, x_j cos + x_i sin) of every pair, the
/// columns behind the pairs as they are.
namespace samestate::cuda {

template <class Operand>
struct RotationParameters {
  const Operand* x = nullptr;     ///< [tokens, heads, width]
  const float* cosine = nullptr;  ///< [tokens, pairs], and sine
  const float* sine = nullptr;
  Operand* y = nullptr;  ///< [tokens, heads, width]
  std::int64_t tokens = 0;
  int heads = 1;
  int width = 2;
  int pairs = 1;
  bool interleaved = false;  ///< pairs (2 i, 2 i + 1), else (i, i + pairs)
};

/// Elements [at, at + n) of the tensor. n above 1 where it divides the width and, unless pairs are neighbours, the pairs.
template <class Operand, int n>
SAMESTATE_DEVICE void rotate(const RotationParameters<Operand>& p, std::int64_t at) {
  using Elements = Vector<Operand, n>;
  const std::int64_t row = quotient(at, p.width);
  const auto column = static_cast<int>(at - row * p.width);
  const std::int64_t token = quotient(row, p.heads);
  const auto load = [](const Operand* from) { return *reinterpret_cast<const Elements*>(from); };
  const Elements x = load(p.x + at);
  float y[n];
  SAMESTATE_UNROLL
  for (int i = 0; i < n; ++i) y[i] = element(x, i);
  if (n > 1 && !p.interleaved && column < 2 * p.pairs) {
    const bool second = column >= p.pairs;
    const std::int64_t pair = token * p.pairs + column - (second ? p.pairs : 0);
    const Elements partner = load(p.x + at + (second ? -p.pairs : p.pairs));
    SAMESTATE_UNROLL
    for (int i = 0; i < n; i += 4) {
      const auto cosine = *reinterpret_cast<const Vector<float, 4>*>(p.cosine + pair + i);
      const auto sine = *reinterpret_cast<const Vector<float, 4>*>(p.sine + pair + i);
      SAMESTATE_UNROLL
      for (int e = i; e < i + 4 && e < n; ++e)
        y[e] = fused(element(partner, e), second ? element(sine, e - i) : -element(sine, e - i),
                     element(x, e) * element(cosine, e - i));
    }
  } else if (column < 2 * p.pairs) {
    SAMESTATE_UNROLL
    for (int i = 0; i < n; ++i) {
      const int j = column + i;
      if (j >= 2 * p.pairs) break;
      const bool upper = p.interleaved ? j % 2 != 0 : j >= p.pairs;
      const std::int64_t pair = token * p.pairs + (p.interleaved ? j / 2 : upper ? j - p.pairs : j);
      const float other =
          n > 1 ? element(x, i ^ 1) : widen(p.x[at + (upper ? -1 : 1) * (p.interleaved ? 1 : p.pairs)]);
      const float sine = p.sine[pair];
      y[i] = fused(other, upper ? sine : -sine, element(x, i) * p.cosine[pair]);
    }
  }
  *reinterpret_cast<Elements*>(p.y + at) = narrowed<Operand>(y);
}

}  // namespace samestate::cuda
