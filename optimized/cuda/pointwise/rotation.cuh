#pragma once

#include <cstdint>

#include "optimized/cuda/units/intrinsics.cuh"

/// The rotary embedding (CFG-10, EQUATIONS 5.7): (x_i, x_j) -> (x_i cos - x_j sin, x_j cos + x_i sin) for
/// every pair; the columns after the pairs stay as they are.
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

/// Elements [at, at + n) of the tensor. n above 1 where pairs are neighbours and it divides the width.
template <class Operand, int n>
SAMESTATE_DEVICE void rotate(const RotationParameters<Operand>& p, std::int64_t at) {
  using Elements = Vector<Operand, n>;
  const std::int64_t row = quotient(at, p.width);
  const auto column = static_cast<int>(at - row * p.width);
  const std::int64_t token = quotient(row, p.heads);
  const Elements x = *reinterpret_cast<const Elements*>(p.x + at);
  float y[n];
  SAMESTATE_UNROLL
  for (int i = 0; i < n; ++i) {
    y[i] = element(x, i);
    const int j = column + i;
    if (j >= 2 * p.pairs) continue;
    const bool upper = p.interleaved ? j % 2 != 0 : j >= p.pairs;
    const std::int64_t pair = token * p.pairs + (p.interleaved ? j / 2 : upper ? j - p.pairs : j);
    const float other =
        n > 1 ? element(x, i ^ 1) : widen(p.x[at + (upper ? -1 : 1) * (p.interleaved ? 1 : p.pairs)]);
    const float sine = p.sine[pair];
    y[i] = fused(other, upper ? sine : -sine, y[i] * p.cosine[pair]);
  }
  *reinterpret_cast<Elements*>(p.y + at) = narrowed<Operand>(y);
}

/// Two vectors of 16 bytes a thread, of pairs (i, i + pairs) where a vector divides width and pairs: both halves of some pairs,
/// or two that stay as they are. All loads are under way before the first store.
template <class Operand>
struct RotatedHalves {
  using Parameters = RotationParameters<Operand>;
  static constexpr int n = 16 / static_cast<int>(sizeof(Operand));
  using Elements = Vector<Operand, n>;

  static SAMESTATE_HOST_DEVICE int copied(const Parameters& p) { return p.width / n - 2 * (p.pairs / n); }
  static SAMESTATE_HOST_DEVICE int items_of_row(const Parameters& p) {
    return p.pairs / n + (copied(p) + 1) / 2;
  }
  static SAMESTATE_HOST_DEVICE std::int64_t items(const Parameters& p) {
    return p.tokens * p.heads * items_of_row(p);
  }

  static SAMESTATE_DEVICE void run(const Parameters& p, std::int64_t item) {
    const std::int64_t row = quotient(item, items_of_row(p));
    const auto place = static_cast<int>(item - row * items_of_row(p));
    const bool turned = place < p.pairs / n;
    const int copy = place - p.pairs / n, half = (copied(p) + 1) / 2;
    const bool two = turned || copy + half < copied(p);
    const std::int64_t first = row * p.width + (turned ? place * n : 2 * p.pairs + copy * n);
    const std::int64_t second = first + (turned ? p.pairs : half * n);
    const std::int64_t pair = quotient(row, p.heads) * p.pairs + place * n;
    const auto x = load_settled<true>(reinterpret_cast<const Elements*>(p.x + first), true);
    const auto other = load_settled<true>(reinterpret_cast<const Elements*>(p.x + second), two);
    Vector<float, 4> cosine[n / 4], sine[n / 4];
    SAMESTATE_UNROLL
    for (int i = 0; i < n / 4; ++i) {
      cosine[i] = load_settled<false>(reinterpret_cast<const Vector<float, 4>*>(p.cosine + pair) + i, turned);
      sine[i] = load_settled<false>(reinterpret_cast<const Vector<float, 4>*>(p.sine + pair) + i, turned);
    }
    if (!turned) {
      store_result<true>(reinterpret_cast<Elements*>(p.y + first), x);
      if (two) store_result<true>(reinterpret_cast<Elements*>(p.y + second), other);
      return;
    }
    float low[n], high[n];
    SAMESTATE_UNROLL
    for (int i = 0; i < n; ++i) {
      const float c = element(cosine[i / 4], i % 4), s = element(sine[i / 4], i % 4);
      low[i] = fused(element(other, i), -s, element(x, i) * c);
      high[i] = fused(element(x, i), s, element(other, i) * c);
    }
    store_result<true>(reinterpret_cast<Elements*>(p.y + first), narrowed<Operand>(low));
    store_result<true>(reinterpret_cast<Elements*>(p.y + second), narrowed<Operand>(high));
  }
};

}  // namespace samestate::cuda
