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
  const auto column = static_cast<int>(at % p.width);
  const std::int64_t token = at / p.width / p.heads;
  const auto load = [](const Operand* from) { return *reinterpret_cast<const Elements*>(from); };
  const Elements x = load(p.x + at);
  float y[n];
  SAMESTATE_UNROLL
  for (int i = 0; i < n; ++i) y[i] = element(x, i);
  if (column < 2 * p.pairs) {
    const bool second = !p.interleaved && column >= p.pairs;
    const Elements partner = p.interleaved ? x : load(p.x + at + (second ? -p.pairs : p.pairs));
    SAMESTATE_UNROLL
    for (int i = 0; i < n; ++i) {
      const int j = column + i;
      if (j >= 2 * p.pairs) break;
      const std::int64_t pair = token * p.pairs + (p.interleaved ? j / 2 : second ? j - p.pairs : j);
      const bool upper = p.interleaved ? j % 2 != 0 : second;
      const float other = !p.interleaved ? element(partner, i)
                          : n == 1       ? widen(p.x[at + (upper ? -1 : 1)])
                                         : element(x, i ^ 1);
      const float sine = p.sine[pair];
      y[i] = fused(other, upper ? sine : -sine, element(x, i) * p.cosine[pair]);
    }
  }
  *reinterpret_cast<Elements*>(p.y + at) = narrowed<Operand>(y);
}

}  // namespace samestate::cuda
