#pragma once

#include <cstdint>

#include "optimized/cuda/pointwise/pointwise.cuh"

/// The zero-centred norm of a head and its rotation in one pass (GATT-1, CFG-10): what stands between the projections of q and k
/// and their attention.
namespace samestate::cuda {

template <class Operand>
struct HeadNormParameters {
  const Operand* x = nullptr;     ///< [tokens, heads, width], from head to head x_stride
  const float* weight = nullptr;  ///< [width]
  const float* cosine = nullptr;  ///< [tokens, pairs], and sine
  const float* sine = nullptr;
  Operand* y = nullptr;  ///< [tokens, heads, width]
  std::int64_t tokens = 0;
  std::int64_t x_stride = 0;
  int heads = 1;
  int width = 2;
  int pairs = 1;  ///< columns (i, i + pairs) turn
};

/// Head `row` of all tokens' by one warp, n elements a lane at a time, which divides width, pairs and x_stride: x_i r (1 + w_i),
/// turned in fp32, rounded once. The second reading finds the row in the cache.
template <class Operand, int n>
SAMESTATE_DEVICE void norm_head(const HeadNormParameters<Operand>& p, std::int64_t row) {
  using Elements = Vector<Operand, n>;
  const Operand* const x = p.x + row * p.x_stride;
  const auto load = [&](int column) { return *reinterpret_cast<const Elements*>(x + column); };
  float squares = 0.0F;
  for (int column = lane_index() * n; column < p.width; column += 32 * n) {
    const Elements part = load(column);
    SAMESTATE_UNROLL
    for (int i = 0; i < n; ++i) squares = fused(element(part, i), element(part, i), squares);
  }
  const float factor = inverse_root(warp_sum(squares) / static_cast<float>(p.width) + 1e-6F);
  const std::int64_t angles = row / p.heads * p.pairs;
  for (int column = lane_index() * n; column < p.width; column += 32 * n) {
    const Elements part = load(column);
    const bool turns = column < 2 * p.pairs, second = column >= p.pairs;
    const int partner = !turns ? column : second ? column - p.pairs : column + p.pairs;
    const Elements other = load(partner);
    float y[n];
    SAMESTATE_UNROLL
    for (int i = 0; i < n; ++i) {
      y[i] = element(part, i) * factor * (1.0F + p.weight[column + i]);
      if (!turns) continue;
      const float with = element(other, i) * factor * (1.0F + p.weight[partner + i]);
      const std::int64_t angle = angles + (second ? partner : column) + i;
      y[i] = fused(with, second ? p.sine[angle] : -p.sine[angle], y[i] * p.cosine[angle]);
    }
    *reinterpret_cast<Elements*>(p.y + row * p.width + column) = narrowed<Operand>(y);
  }
}

template <class Operand, int n>
struct NormedHead {
  using Parameters = HeadNormParameters<Operand>;
  static SAMESTATE_HOST_DEVICE std::int64_t items(const Parameters& p) { return p.tokens * p.heads; }
  static SAMESTATE_DEVICE void run(const Parameters& p, std::int64_t row) { norm_head<Operand, n>(p, row); }
};

}  // namespace samestate::cuda
