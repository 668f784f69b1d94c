#pragma once

#include "optimized/cuda/units/intrinsics.cuh"

namespace samestate::cuda {

/// T = (I + A)^-1 by fp32 forward substitution, column by column: x = e_c; for j = c, c + 1, ...: x_i -= A_ij
/// x_j for i > j. Rounded to Operand when stored (EQUATIONS 5.5; the contract's `substitution`).
///
/// A [rows, rows] is read strictly below the diagonal and only in its first `tokens` rows; T [rows, rows] is
/// written whole. rows <= 64: a lane holds rows `lane` and `lane + 32` of eight columns, so no barrier is
/// needed.
template <class Operand>
SAMESTATE_DEVICE void invert_unit_lower(const float* A, int a_stride, Operand* T, int t_stride, int rows,
                                        int tokens) {
  constexpr int kColumns = 8;
  const int low = lane_index();
  const int high = low + 32;
  for (int first = warp_index() * kColumns; first < rows; first += block_warps() * kColumns) {
    float x[kColumns][2];
    SAMESTATE_UNROLL
    for (int c = 0; c < kColumns; ++c) {
      x[c][0] = low == first + c ? 1.0F : 0.0F;
      x[c][1] = high == first + c ? 1.0F : 0.0F;
    }
    for (int j = first; j < tokens && j < 32; ++j) {
      const bool low_below = low > j && low < tokens;
      const bool high_below = high < tokens;
      const float a_low = low_below ? -A[low * a_stride + j] : 0.0F;
      const float a_high = high_below ? -A[high * a_stride + j] : 0.0F;
      SAMESTATE_UNROLL
      for (int c = 0; c < kColumns; ++c) {
        const float x_j = shuffle(x[c][0], j);
        if (low_below) x[c][0] = fused(a_low, x_j, x[c][0]);
        if (high_below) x[c][1] = fused(a_high, x_j, x[c][1]);
      }
    }
    for (int j = first > 32 ? first : 32; j < tokens; ++j) {
      const bool below = high > j && high < tokens;
      const float a = below ? -A[high * a_stride + j] : 0.0F;
      SAMESTATE_UNROLL
      for (int c = 0; c < kColumns; ++c) {
        const float x_j = shuffle(x[c][1], j - 32);
        if (below) x[c][1] = fused(a, x_j, x[c][1]);
      }
    }
    SAMESTATE_UNROLL
    for (int c = 0; c < kColumns; ++c) {
      if (low < rows) T[low * t_stride + first + c] = narrow<Operand>(x[c][0]);
      if (high < rows) T[high * t_stride + first + c] = narrow<Operand>(x[c][1]);
    }
  }
}

}  // namespace samestate::cuda
