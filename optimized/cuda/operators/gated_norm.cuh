#pragma once

#include <cstdint>

#include "optimized/cuda/operators/grid.cuh"
#include "optimized/cuda/operators/pointwise.cuh"

/// Mamba-2's norm: of y silu(z), over equal parts of a row with a mean each (EQUATIONS 5.10).
namespace samestate::cuda {

template <class Operand>
struct GatedNormParameters {
  const Operand* y = nullptr;  ///< [rows, groups, width], z too
  const Operand* z = nullptr;
  const float* weight = nullptr;  ///< [groups, width]
  Operand* out = nullptr;         ///< [rows, groups, width]
  std::int64_t rows = 0;
  int groups = 1;
  int width = 1;
};

/// h (mean h^2 + 1e-5)^-1/2 w with h = y silu(z), a part by one warp, n elements a lane at a time, which divides width. The
/// second reading finds the part in the cache.
template <class Operand, int n>
struct GatedNormRow {
  using Parameters = GatedNormParameters<Operand>;
  static SAMESTATE_HOST_DEVICE std::int64_t items(const Parameters& p) { return p.rows * p.groups; }
  static SAMESTATE_DEVICE void run(const Parameters& p, std::int64_t item) {
    using Elements = Vector<Operand, n>;
    const std::int64_t first = item * p.width;
    const float* const weight = p.weight + (item - quotient(item, p.groups) * p.groups) * p.width;
    const auto gated = [&](int column, float(&h)[n]) {
      const Elements y = *reinterpret_cast<const Elements*>(p.y + first + column);
      const Elements z = *reinterpret_cast<const Elements*>(p.z + first + column);
      SAMESTATE_UNROLL
      for (int i = 0; i < n; ++i) h[i] = element(y, i) * silu(element(z, i));
    };
    float h[n], squares = 0.0F;
    for (int column = lane_index() * n; column < p.width; column += 32 * n) {
      gated(column, h);
      SAMESTATE_UNROLL
      for (int i = 0; i < n; ++i) squares = fused(h[i], h[i], squares);
    }
    const float factor = inverse_root(warp_sum(squares) / static_cast<float>(p.width) + 1e-5F);
    for (int column = lane_index() * n; column < p.width; column += 32 * n) {
      gated(column, h);
      SAMESTATE_UNROLL
      for (int i = 0; i < n; ++i) h[i] *= factor * weight[column + i];
      *reinterpret_cast<Elements*>(p.out + first + column) = narrowed<Operand>(h);
    }
  }
};

template <class Operand>
void norm_gated(const GatedNormParameters<Operand>& p, cudaStream_t stream) {
  constexpr int n = 16 / static_cast<int>(sizeof(Operand));
  if (p.width % n == 0) {
    EachWarp<GatedNormRow<Operand, n>>::launch(p, stream);
  } else {
    EachWarp<GatedNormRow<Operand, 1>>::launch(p, stream);
  }
}

}  // namespace samestate::cuda
