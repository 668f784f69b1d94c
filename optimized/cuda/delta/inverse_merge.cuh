#pragma once

#include "optimized/cuda/units/intrinsics.cuh"

/// The inverse of a unit lower triangular matrix from its 16 x 16 blocks on, merged in tf32 (inverse:block8/tf32).
namespace samestate::cuda {

inline constexpr int kInverseStride = 68;  ///< floats a row

/// Inverse of a 16 x 16 unit lower triangular block at `a`, in place, by one warp: both 8 x 8 blocks by forward
/// substitution in fp32, a lane a column; then the block below them, -X22 A21 X11, in tf32.
SAMESTATE_DEVICE void invert_16(float* a, int lane) {
  float x[8];
  const int column = lane % 8;
  float* const block = a + lane / 8 % 2 * 8 * (kInverseStride + 1);
  SAMESTATE_UNROLL
  for (int i = 0; i < 8; ++i) {
    float sum = column == i ? 1.0F : 0.0F;
    SAMESTATE_UNROLL
    for (int j = 0; j < i; j += 4) {
      const Quad m = load_quad(block + i * kInverseStride + j);
      sum = fused(-m.x, x[j], sum);
      if (j + 1 < i) sum = fused(-m.y, x[j + 1], sum);
      if (j + 2 < i) sum = fused(-m.z, x[j + 2], sum);
      if (j + 3 < i) sum = fused(-m.w, x[j + 3], sum);
    }
    x[i] = sum;
  }
  warp_barrier();
  if (lane < 16) {
    SAMESTATE_UNROLL
    for (int i = 0; i < 8; ++i) block[i * kInverseStride + column] = x[i];
  }
  warp_barrier();
  const int r = lane / 4;
  const int k = lane % 4;
  float left[4] = {};
  float below[4] = {};
  const float* const x22 = a + 8 * (kInverseStride + 1);
  const std::uint32_t l[4] = {tf32(x22[r * kInverseStride + k]), 0, tf32(x22[r * kInverseStride + k + 4]), 0};
  multiply_tf32(left, l, tf32(a[(8 + k) * kInverseStride + r]), tf32(a[(12 + k) * kInverseStride + r]));
  // Columns 2k, 2k + 1 of an accumulator stand for k, k + 4 of the next product's inner index.
  const std::uint32_t n[4] = {tf32(-left[0]), 0, tf32(-left[1]), 0};
  multiply_tf32(below, n, tf32(a[2 * k * kInverseStride + r]), tf32(a[(2 * k + 1) * kInverseStride + r]));
  warp_barrier();  // A21 has been read
  store_pair(&a[(8 + r) * kInverseStride + 2 * k], below[0], below[1]);
}

/// 16 rows and 16 columns of -(X22 A21) X11 by one warp, the first or last of each: `x22` its 16 rows, `a21` [n, n],
/// `x11` its 16 columns. What the triangles X22 and X11 have of zeros is left out.
template <int n>
SAMESTATE_DEVICE void merge(float (&below)[2][4], const float* x22, const float* a21, const float* x11,
                            bool last_rows, bool last_columns, int lane) {
  constexpr int kStride = kInverseStride;
  float left[n / 8][4] = {};
  const int r = lane / 4;
  const int k = lane % 4;
  SAMESTATE_UNROLL
  for (int kk = 0; kk < n; kk += 8) {
    const std::uint32_t a[4] = {tf32(x22[r * kStride + kk + k]), tf32(x22[(r + 8) * kStride + kk + k]),
                                tf32(x22[r * kStride + kk + k + 4]),
                                tf32(x22[(r + 8) * kStride + kk + k + 4])};
    SAMESTATE_UNROLL
    for (int j = 0; j < n / 8; ++j) {
      multiply_tf32_if((kk < 16 || last_rows) && (8 * j >= n - 16 || !last_columns), left[j], a,
                       tf32(a21[(kk + k) * kStride + 8 * j + r]),
                       tf32(a21[(kk + k + 4) * kStride + 8 * j + r]));
    }
  }
  SAMESTATE_UNROLL
  for (int j = 0; j < 2; ++j) {
    SAMESTATE_UNROLL
    for (int i = 0; i < 4; ++i) below[j][i] = 0.0F;
  }
  SAMESTATE_UNROLL
  for (int kk = 0; kk < n / 8; ++kk) {
    const std::uint32_t a[4] = {tf32(-left[kk][0]), tf32(-left[kk][2]), tf32(-left[kk][1]),
                                tf32(-left[kk][3])};
    SAMESTATE_UNROLL
    for (int j = 0; j < 2; ++j) {
      multiply_tf32_if(kk >= j && (8 * (kk - j) >= n - 16 || !last_columns), below[j], a,
                       tf32(x11[(8 * kk + 2 * k) * kStride + 8 * j + r]),
                       tf32(x11[(8 * kk + 2 * k + 1) * kStride + 8 * j + r]));
    }
  }
}

}  // namespace samestate::cuda
