#pragma once

#include <cstdint>

#include "optimized/cuda/dendritic/lists.cuh"
#include "optimized/cuda/pointwise/pointwise.cuh"

/// Combines the branches of a token's heads (EQUATIONS 7.3, steps 15 to 17).
namespace samestate::cuda {

template <class Operand>
struct MixParameters {
  DendriticShape shape;
  const float* omega = nullptr;   ///< [B, T, H, slots]
  const Operand* o = nullptr;     ///< [B, T, H, slots, N, dv]
  const Operand* z = nullptr;     ///< [B, T, H, dv]
  const float* weight = nullptr;  ///< [dv]
  Operand* a = nullptr;           ///< [B, T, H, dv], mixed
  Operand* gated = nullptr;       ///< the same, normalised and gated
};

/// Row (b, t, h) by one warp, windows and slots summed in the order of their numbers. n above 1 where it divides dv.
template <class Operand, int n>
struct MixedRow {
  using Parameters = MixParameters<Operand>;
  static SAMESTATE_HOST_DEVICE std::int64_t items(const Parameters& p) { return p.shape.rows(); }
  static SAMESTATE_DEVICE void run(const Parameters& p, std::int64_t row) {
    using Elements = Vector<Operand, n>;
    const DendriticShape& s = p.shape;
    float squares = 0.0F;
    for (int c = lane_index() * n; c < s.values; c += 32 * n) {
      float mixed[n] = {}, sum[n] = {};
      constexpr int kAtOnce = 4;  // loads under way
      const int parts = s.slots() * s.windows;
      int window = 0;
      std::int64_t slot_row = row * s.slots();
      for (int first = 0; first < parts; first += kAtOnce) {
        Elements x[kAtOnce]{};
        SAMESTATE_UNROLL
        for (int j = 0; j < kAtOnce; ++j) {
          if (first + j < parts)
            x[j] = *reinterpret_cast<const Elements*>(p.o + (row * parts + first + j) * s.values + c);
        }
        SAMESTATE_UNROLL
        for (int j = 0; j < kAtOnce; ++j) {
          if (first + j >= parts) break;
          SAMESTATE_UNROLL
          for (int i = 0; i < n; ++i) sum[i] += element(x[j], i);
          if (++window < s.windows) continue;
          const float omega = p.omega[slot_row++];
          SAMESTATE_UNROLL
          for (int i = 0; i < n; ++i) mixed[i] = fused(omega, sum[i], mixed[i]), sum[i] = 0.0F;
          window = 0;
        }
      }
      const Elements kept = narrowed<Operand>(mixed);
      *reinterpret_cast<Elements*>(p.a + row * s.values + c) = kept;
      SAMESTATE_UNROLL
      for (int i = 0; i < n; ++i) squares = fused(element(kept, i), element(kept, i), squares);
    }
    const float factor = inverse_root(warp_sum(squares) / static_cast<float>(s.values) + 1e-5F);
    for (int c = lane_index() * n; c < s.values; c += 32 * n) {  // what this lane wrote itself
      const auto kept = *reinterpret_cast<const Elements*>(p.a + row * s.values + c);
      const auto z = *reinterpret_cast<const Elements*>(p.z + row * s.values + c);
      float y[n];
      SAMESTATE_UNROLL
      for (int i = 0; i < n; ++i)
        y[i] = element(kept, i) * factor * (p.weight[c + i] * silu_for<Operand>(element(z, i)));
      *reinterpret_cast<Elements*>(p.gated + row * s.values + c) = narrowed<Operand>(y);
    }
  }
};

}  // namespace samestate::cuda
