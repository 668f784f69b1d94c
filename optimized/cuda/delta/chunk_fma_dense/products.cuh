#pragma once

#include "optimized/cuda/delta/chunk_fma_dense/prepare.cuh"

namespace samestate::cuda::simt {

/// Products of a chunk by FMAs, an element a thread of every 16 x 16 block on and below the diagonal.
template <bool delta, bool norm>
class FmaProducts {
 public:
  static constexpr int kBlocksAtOnce = 2;  ///< per multiprocessor

  SAMESTATE_DEVICE static float decay(float x) { return exponential(x); }
  SAMESTATE_DEVICE static float stored(float x) { return x; }

  /// K K^T and Q K^T: of every 16 x 16 block on and below the diagonal an element a thread.
  SAMESTATE_DEVICE void multiply(const PrepareShared& s, int dk) {
    SAMESTATE_UNROLL
    for (int e = 0; e < kBlocks; ++e) KK[e] = QK[e] = 0.0F;
    const int depth = (dk + 3) / 4 * 4;
    SAMESTATE_NO_UNROLL
    for (int l = 0; l < depth; l += 4) {
      Quad right[4];
      SAMESTATE_UNROLL
      for (int j = 0; j < 4; ++j) right[j] = load_quad(s.k + (16 * j + at.column) * kKeyStride + l);
      SAMESTATE_UNROLL
      for (int i = 0; i < 4; ++i) {
        const Quad k = load_quad(s.k + (16 * i + at.row) * kKeyStride + l);
        const Quad q = load_quad(s.q + (16 * i + at.row) * kKeyStride + l);
        SAMESTATE_UNROLL
        for (int j = 0; j <= i; ++j) {
          SAMESTATE_UNROLL
          for (int e = 0; e < 4; ++e) {
            if constexpr (delta) KK[block(i, j)] = fused(part(k, e), part(right[j], e), KK[block(i, j)]);
            QK[block(i, j)] = fused(part(q, e), part(right[j], e), QK[block(i, j)]);
          }
        }
      }
    }
  }

  /// A and P; zero above the diagonal, which the inverse reads.
  SAMESTATE_DEVICE void weigh(PrepareShared& s, float scale) const {
    SAMESTATE_UNROLL
    for (int i = 0; i < 4; ++i) {
      const int row = 16 * i + at.row;
      const float left = s.beta[row] * (norm ? s.key_norm[row] : 1.0F);
      const float right = scale * (norm ? s.query_norm[row] : 1.0F);
      SAMESTATE_UNROLL
      for (int j = 0; j < 4; ++j) {
        const int column = 16 * j + at.column;
        float a = 0.0F;
        float x = 0.0F;
        if (j <= i) {
          // Above the diagonal an exponential may overflow: selected, not multiplied.
          const float difference = s.G[row] - s.G[column];
          const float E = row >= column ? decay(difference) * (norm ? s.key_norm[column] : 1.0F) : 0.0F;
          if (row > column) a = KK[block(i, j)] * E * left;
          if (row >= column) x = QK[block(i, j)] * E * right;
        }
        if constexpr (delta) s.k[row * kSquareStride + column] = a;
        s.q[row * kSquareStride + column] = x;
      }
    }
  }

  /// A <- (I + A)^-1: blocks of 8 x 8 by forward substitution, a lane a column, then merges (the contract's block8).
  SAMESTATE_DEVICE static void invert(PrepareShared& s) {
    const int thread = thread_index();
    float x[8];
    float* const A = s.k + thread / 8 % 8 * 8 * (kSquareStride + 1);
    const int column = thread % 8;
    SAMESTATE_UNROLL
    for (int i = 0; i < 8; ++i) {
      x[i] = column == i ? 1.0F : 0.0F;
      SAMESTATE_UNROLL
      for (int j = 0; j < i; ++j) x[i] = fused(-A[i * kSquareStride + j], x[j], x[i]);
    }
    block_barrier();
    if (thread < kChunk) {
      SAMESTATE_UNROLL
      for (int i = 0; i < 8; ++i) A[i * kSquareStride + column] = x[i];
    }
    block_barrier();
    merge<8>(s);
    merge<16>(s);
    merge<32>(s);
  }

 private:
  /// T21 = -(T22 A21) T11 of every pair of diagonal blocks of n x n.
  template <int n>
  SAMESTATE_DEVICE static void merge(PrepareShared& s) {
    constexpr int kRows = n / 8;  // of a thread
    float* const product = s.q + kChunk * kSquareStride;
    const int column = thread_index() % n;
    const int pair = thread_index() / n / 8;
    const int row = thread_index() / n % 8 * kRows;
    float* const T11 = s.k + 2 * n * pair * (kSquareStride + 1);
    float* const A21 = T11 + n * kSquareStride;
    const float* const T22 = A21 + n;
    float* const M = product + pair * n * n;
    float sum[kRows];
    multiply_rows<n, kRows>(sum, T22 + row * kSquareStride, kSquareStride, A21 + column, kSquareStride);
    SAMESTATE_UNROLL
    for (int i = 0; i < kRows; ++i) M[(row + i) * n + column] = sum[i];
    block_barrier();
    multiply_rows<n, kRows>(sum, M + row * n, n, T11 + column, kSquareStride);
    SAMESTATE_UNROLL
    for (int i = 0; i < kRows; ++i) A21[(row + i) * kSquareStride + column] = -sum[i];
    block_barrier();
  }

  template <int n, int rows>
  SAMESTATE_DEVICE static void multiply_rows(float (&sum)[rows], const float* a, int a_stride, const float* b,
                                             int b_stride) {
    SAMESTATE_UNROLL
    for (int i = 0; i < rows; ++i) sum[i] = 0.0F;
    SAMESTATE_UNROLL
    for (int l = 0; l < n; l += 4) {
      float right[4];
      SAMESTATE_UNROLL
      for (int e = 0; e < 4; ++e) right[e] = b[(l + e) * b_stride];
      SAMESTATE_UNROLL
      for (int i = 0; i < rows; ++i) {
        const Quad left = load_quad(a + i * a_stride + l);
        SAMESTATE_UNROLL
        for (int e = 0; e < 4; ++e) sum[i] = fused(part(left, e), right[e], sum[i]);
      }
    }
  }

  static constexpr int kBlocks = 10;
  SAMESTATE_DEVICE static constexpr int block(int i, int j) { return i * (i + 1) / 2 + j; }

  Place at{16};
  float KK[kBlocks], QK[kBlocks];
};

}  // namespace samestate::cuda::simt
