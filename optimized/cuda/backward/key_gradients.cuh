#pragma once

#include "optimized/cuda/backward/backward_parameters.cuh"

/// The first launch where q and k are normalised inside, and the last one of every call: what belongs to a token and key head.
namespace samestate::cuda {

/// q and k of unit length, in fp32. A row of one of them a warp.
struct NormalisedKeys {
  using Parameters = BackwardParameters<float>;
  static SAMESTATE_HOST_DEVICE std::int64_t items(const Parameters& p) { return 2 * p.rows * p.Hk; }
  static SAMESTATE_DEVICE void run(const Parameters& p, std::int64_t item) {
    const bool is_k = item >= p.rows * p.Hk;
    const std::int64_t first = (p.first_row * p.Hk + (is_k ? item - p.rows * p.Hk : item)) * p.dk;
    const float* const from = (is_k ? p.raw_k : p.raw_q) + first;
    float* const to = (is_k ? p.normalised_k : p.normalised_q) + first;
    float squares = 0.0F;
    for (int c = lane_index(); c < p.dk; c += 32) squares = fused(from[c], from[c], squares);
    const float factor = inverse_root(warp_sum(squares) + 1e-6F);
    for (int c = lane_index(); c < p.dk; c += 32) to[c] = from[c] * factor;
  }
};

/// dq and dk of a token and key head: the sums over its value heads, in their order, and the gradient of the norm. A row a warp.
template <class Operand>
struct KeyGradients {
  using Parameters = BackwardParameters<Operand>;
  static constexpr int kEach = kKeyLimit / 32;  ///< elements of a row that a lane has

  static SAMESTATE_HOST_DEVICE std::int64_t items(const Parameters& p) { return p.rows * p.Hk; }

  static SAMESTATE_DEVICE void run(const Parameters& p, std::int64_t item) {
    const std::int64_t row = p.first_row + item / p.Hk, key_head = item % p.Hk;
    SAMESTATE_NO_UNROLL
    for (int which = 0; which < 2; ++which) {
      const bool is_k = which == 1;
      Operand* const to = is_k ? p.d_k : p.d_q;
      if (to == nullptr) continue;
      float x[kEach];
      sum_heads(p, is_k ? p.k_part : p.q_part, row, key_head, x);
      if (is_k && p.delta) {
        float correction[kEach];
        sum_heads(p, p.k_correction, row, key_head, correction);
        SAMESTATE_UNROLL
        for (int i = 0; i < kEach; ++i) x[i] = widen(kept_value(p, x[i] + correction[i]));
      }
      write(p, is_k ? p.raw_k : p.raw_q, row * p.Hk + key_head, x, to);
    }
  }

 private:
  static SAMESTATE_DEVICE void sum_heads(const Parameters& p, const Operand* parts, std::int64_t row,
                                         std::int64_t key_head, float (&x)[kEach]) {
    const std::int64_t served = p.Hv / p.Hk;
    SAMESTATE_UNROLL
    for (int i = 0; i < kEach; ++i) {
      const int c = lane_index() + 32 * i;
      x[i] = 0.0F;
      if (c >= p.dk) continue;
      for (std::int64_t h = 0; h < served; ++h) {
        const std::int64_t head = p.tiled_heads ? h * p.Hk + key_head : key_head * served + h;
        x[i] += widen(parts[(row * p.Hv + head) * p.dk + c]);
      }
      if (served > 1) x[i] = widen(kept_value(p, x[i]));
    }
  }

  /// Writes x, the gradient of row `at` of q or k, or of what that is normalised to.
  static SAMESTATE_DEVICE void write(const Parameters& p, const Operand* raw, std::int64_t at,
                                     float (&x)[kEach], Operand* to) {
    if (raw != nullptr) {
      float y[kEach], squares = 0.0F, along = 0.0F;
      SAMESTATE_UNROLL
      for (int i = 0; i < kEach; ++i) {
        const int c = lane_index() + 32 * i;
        y[i] = c < p.dk ? widen(raw[at * p.dk + c]) : 0.0F;
        squares = fused(y[i], y[i], squares);
      }
      const float factor = inverse_root(warp_sum(squares) + 1e-6F);
      SAMESTATE_UNROLL
      for (int i = 0; i < kEach; ++i) {
        y[i] = widen(kept_value(p, y[i] * factor));
        x[i] = widen(kept_value(p, x[i]));
        along = fused(x[i], y[i], along);
      }
      along = warp_sum(along);
      SAMESTATE_UNROLL
      for (int i = 0; i < kEach; ++i) x[i] = factor * fused(-along, y[i], x[i]);
    }
    SAMESTATE_UNROLL
    for (int i = 0; i < kEach; ++i) {
      const int c = lane_index() + 32 * i;
      if (c < p.dk) to[at * p.dk + c] = kept_value(p, x[i]);
    }
  }
};

}  // namespace samestate::cuda
