#pragma once

#include "optimized/cuda/delta/chunk_fma_dense/prepare.cuh"
#include "optimized/cuda/delta/chunk_mma_dense/fragments.cuh"
#include "optimized/cuda/delta/inverse_merge.cuh"

namespace samestate::cuda::mma {

using simt::kChunk;
using simt::kKeyStride;
using simt::kSquareStride;
static_assert(kSquareStride == kInverseStride, "A lies as the merges read it");

/// Products of a chunk by tensor cores in tf32, for simt::PrepareBlock: the ten 16 x 16 blocks on and below the diagonal
/// of K K^T and of Q K^T, every eighth of the twenty a warp.
template <bool delta, bool norm>
class Products {
 public:
  static constexpr int kBlocksAtOnce = 3;  ///< per multiprocessor

  SAMESTATE_DEVICE static float decay(float x) { return cuda::decay<Bf16>(x); }
  SAMESTATE_DEVICE static float stored(float x) { return rounded(x); }

  SAMESTATE_DEVICE static void multiply(simt::PrepareShared& s, int dk) {
    float sums[kTurns][2][4];
    SAMESTATE_UNROLL
    for (int n = 0; n < kTurns; ++n) {
      SAMESTATE_UNROLL
      for (int e = 0; e < 8; ++e) sums[n][e / 4][e % 4] = 0.0F;
      const Block b(n);
      if (!b.exists) continue;
      const float* const left = (b.keys ? s.k : s.q) + left_offset(kKeyStride, 16 * b.i, 0);
      const float* const right = s.k + right_offset(kKeyStride, 16 * b.j, 0);
      SAMESTATE_NO_UNROLL
      for (int first = 0; first < dk; first += 32) {  // beyond dk both are zero
        SAMESTATE_UNROLL
        for (int l = first; l < first + 32; l += 8) {
          std::uint32_t x[4], y[4];
          load_matrices(x, left + l);
          load_matrices(y, right + l);
          round(x), round(y);
          multiply_two(sums[n][0], sums[n][1], x, y);
        }
      }
    }
    block_barrier();  // K and Q have been read
    SAMESTATE_UNROLL
    for (int n = 0; n < kTurns; ++n) {
      const Block b(n);
      if (!b.exists) continue;
      float* const to = kept(s, b);
      SAMESTATE_UNROLL
      for (int half = 0; half < 2; ++half) simt::store_quad(to + 128 * half, sums[n][half]);
    }
  }

  /// A and P, of both what lies above the diagonal of a 16 x 16 block on it zero; and A's blocks above those, which the
  /// inverse reads.
  SAMESTATE_DEVICE static void weigh(simt::PrepareShared& s, float scale) {
    const Cell at;
    SAMESTATE_NO_UNROLL
    for (int n = 0; n < kTurns; ++n) {
      const Block b(n);
      if (!b.exists) continue;
      const float* const from = kept(s, b);
      const Quad halves[2] = {load_quad(from), load_quad(from + 128)};
      SAMESTATE_UNROLL
      for (int e = 0; e < 8; ++e) {
        const int row = 16 * b.i + at.r + e % 4 / 2 * 8;
        const int column = 16 * b.j + e / 4 * 8 + at.c + e % 2;
        // Above the diagonal an exponential may overflow: selected, not multiplied.
        const float difference = s.G[row] - s.G[column];
        const float E = row >= column ? decay(difference) * (norm ? s.key_norm[column] : 1.0F) : 0.0F;
        const float x = simt::part(halves[e / 4], e % 4) * E;
        if (b.keys) {
          const float left = s.beta[row] * (norm ? s.key_norm[row] : 1.0F);
          s.k[row * kSquareStride + column] = row > column ? x * left : 0.0F;
        } else {
          s.q[row * kSquareStride + column] =
              row >= column ? x * (scale * (norm ? s.query_norm[row] : 1.0F)) : 0.0F;
        }
      }
    }
    if constexpr (delta) {
      SAMESTATE_NO_UNROLL
      for (int i = thread_index(); i < kChunk * kChunk / 4; i += simt::kThreads) {
        const int row = i / (kChunk / 4);
        const int column = i % (kChunk / 4) * 4;
        if (!simt::below_diagonal(row, column))
          simt::store_quad(s.k + row * kSquareStride + column, {0.0F, 0.0F, 0.0F, 0.0F});
      }
    }
  }

  /// A <- (I + A)^-1.
  SAMESTATE_DEVICE static void invert(simt::PrepareShared& s) {
    const int warp = warp_index();
    if (warp < 4) invert_16(s.k + 16 * warp * (kInverseStride + 1), lane_index());
    block_barrier();
    float below[2][4];
    if (warp < 2) {
      float* const a21 = s.k + 32 * warp * (kInverseStride + 1) + 16 * kInverseStride;
      merge<16>(below, a21 + 16, a21, a21 - 16 * kInverseStride, true, true, lane_index());
      warp_barrier();  // A21 has been read
      put(a21, below);
    }
    block_barrier();
    const int row = warp % 2;
    const int column = warp / 2;
    float* const a21 = s.k + 32 * kInverseStride;
    if (warp < 4)
      merge<32>(below, a21 + 16 * row * kInverseStride + 32, a21, s.k + 16 * column, row == 1, column == 1,
                lane_index());
    block_barrier();  // A21 has been read
    if (warp < 4) put(a21 + 16 * row * kInverseStride + 16 * column, below);
    block_barrier();
  }

 private:
  static constexpr int kBlocks = 10;
  static constexpr int kTurns = delta ? 3 : 2;

  /// The block of a warp in turn n.
  struct Block {
    int block, i, j;  ///< indices of the 16 x 16 blocks
    bool keys;        ///< true for K K^T, false for Q K^T
    bool exists;
    SAMESTATE_DEVICE explicit Block(int n) {
      const int index = 8 * n + warp_index();
      block = index % kBlocks;
      i = (block >= 1) + (block >= 3) + (block >= 6);
      j = block - i * (i + 1) / 2;
      keys = delta && index < kBlocks;
      exists = index < (delta ? 2 * kBlocks : kBlocks);
    }
  };

  /// Returns where a thread keeps its share of a block of K K^T or Q K^T: after A or P, in the memory that K
  /// and Q had.
  SAMESTATE_DEVICE static float* kept(simt::PrepareShared& s, const Block& b) {
    return (b.keys ? s.k : s.q) + kChunk * kSquareStride + 256 * b.block + 4 * lane_index();
  }

  SAMESTATE_DEVICE static void put(float* to, const float (&x)[2][4]) {
    const Cell at;
    SAMESTATE_UNROLL
    for (int e = 0; e < 8; e += 2)
      store_pair(to + (at.r + e % 4 / 2 * 8) * kInverseStride + e / 4 * 8 + at.c, x[e / 4][e % 4],
                 x[e / 4][e % 4 + 1]);
  }
};

}  // namespace samestate::cuda::mma
