#pragma once

#include "optimized/cuda/delta/chunk_wgmma_dense/layout.cuh"
#include "optimized/cuda/delta/inverse_merge.cuh"

/// T and P of one chunk by one warpgroup.
namespace samestate::cuda {

/// Where a thread stands in the 64 x 64 results of wgmma.cuh and in tiles.
struct Place {
  int lane = lane_index(), warp = broadcast(warp_index() % 4);
  int row = 16 * warp + lane / 4, column = 2 * (lane % 4);
  int matrix = lane / 8, matrix_row = lane % 8;  ///< the 8 x 8 matrix, and its row, whose address it passes

  /// Returns the same place, but the addresses made from it are computed again: keeping them from chunk to
  /// chunk would take more registers than there are.
  SAMESTATE_DEVICE Place again() const { return {recomputed(lane), warp}; }
};

/// r = (sum x^2 + 1e-6)^-1/2 of row `row` of a chunk (EQUATIONS 5.2), by two lanes, half of every panel each.
SAMESTATE_DEVICE float row_norm(const Bf16 (&panels)[kPanels][kTileBytes / 2], int row, int half) {
  float sum = 0.0F;
  SAMESTATE_UNROLL
  for (int panel = 0; panel < kPanels; ++panel) {
    SAMESTATE_UNROLL
    for (int byte = 0; byte < 64; byte += 16) {
      const Words x = load_words(panels[panel], swizzled(row, 64 * half + byte));
      for (const std::uint32_t both : {x.x, x.y, x.z, x.w}) {
        sum = fused(low(both), low(both), sum);
        sum = fused(high(both), high(both), sum);
      }
    }
  }
  return inverse_root(sum + shuffle_xor(sum, 1) + 1e-6F);
}

/// The parts. `SharedMemory` has `a` and `made` of every maker.
template <class SharedMemory, bool delta, bool norm>
struct MakerParts {
  SharedMemory& s;
  const Prefill& c;
  int group;  ///< which of the makers
  Place at{};

 protected:
  SAMESTATE_DEVICE static int thread() { return thread_index() % 128; }
  /// The maker's threads meet.
  SAMESTATE_DEVICE void meet() const { named_barrier(group + 1, 128); }

 public:
  /// Once: what lies above the diagonal of T and P, and of A where merges read it, stays zero from here on.
  SAMESTATE_DEVICE void clear() {
    SAMESTATE_NO_UNROLL
    for (int i = thread(); i < 2 * kTileBytes / 16; i += 128)
      store_words(s.made[group].T, 16 * i, words(0, 0, 0, 0));
    if constexpr (delta) {
      SAMESTATE_NO_UNROLL
      for (int i = thread(); i < kChunk * kInverseStride / 2; i += 128)
        store_pair(&s.a[group][2 * i], 0.0F, 0.0F);
    }
    meet();
  }

 protected:
  /// c = X Y^T over the keys.
  SAMESTATE_DEVICE static void multiply_rows(float (&sums)[32], const Bf16 (&x)[kPanels][kTileBytes / 2],
                                             const Bf16 (&y)[kPanels][kTileBytes / 2]) {
    SAMESTATE_UNROLL
    for (int kk = 0; kk < 4 * kPanels; ++kk)
      multiply(sums, by_rows(x[kk / 4], kk % 4), by_rows(y[kk / 4], kk % 4), kk > 0);
  }

  /// Computes the norm of every row, without a branch, since products follow it.
  SAMESTATE_DEVICE static void norms(const Bf16 (&rows)[kPanels][kTileBytes / 2], float* to) {
    const int thread = recomputed(MakerParts::thread());
    to[thread / 2] = row_norm(rows, thread / 2, thread % 2);
  }

  /// A = beta K K^T o E below the diagonal, P = scale Q K^T o E on and below it, or one of the two; 16 columns at a
  /// time.
  template <bool make_A, bool make_P>
  SAMESTATE_DEVICE void weigh(const float (&KK)[32], const float (&QK)[32], const Gates& y) {
    const Place here = at.again();
    float left[2] = {};   // beta r of this thread's rows
    float right[2] = {};  // scale r^q
    SAMESTATE_UNROLL
    for (int i = 0; i < 2; ++i) {
      if constexpr (make_A) left[i] = y.beta[here.row + 8 * i] * (norm ? y.key_norm[here.row + 8 * i] : 1.0F);
      if constexpr (make_P) right[i] = c.p.scale * (norm ? y.query_norm[here.row + 8 * i] : 1.0F);
    }
    SAMESTATE_UNROLL
    for (int j = 0; j < 4; ++j) {  // only the block on the diagonal needs the mask
      if (j < at.warp)
        weigh_columns<false, make_A, make_P>(here, j, KK, QK, y, left, right);
      else if (j == at.warp)
        weigh_columns<true, make_A, make_P>(here, j, KK, QK, y, left, right);
    }
  }

  /// Computes the factors of the state blocks, one token per thread from `first` on.
  SAMESTATE_DEVICE void gates(const Gates& x, int first = 0) {
    const int i = recomputed(thread()) - first;
    Prepared& y = s.made[group];
    if (0 <= i && i < kChunk) {
      const float* const G = x.decay;
      const float r = norm ? x.key_norm[i] : 1.0F;
      const float from_start = exponential2(G[i]);
      y.beta[i] = x.beta[i];
      y.beta_start[i] = x.beta[i] * from_start * r;
      y.to_end[i] = exponential2(G[kChunk - 1] - G[i]) * r;
      y.out_start[i] = c.p.scale * from_start * (norm ? x.query_norm[i] : 1.0F);
      mark_stored(&y.beta[i]), mark_stored(&y.out_start[i]);
      if (i < 4) y.over[i] = exponential2(G[kChunk - 1]), mark_stored(&y.over[i]);
    }
  }

  /// The two 32 x 32 blocks on A's diagonal <- their inverses in I + A.
  SAMESTATE_DEVICE void invert() {
    constexpr int kStride = kInverseStride;
    float* const A = s.a[group];
    invert_16(A + 16 * at.warp * (kStride + 1), recomputed(at.lane));
    meet();
    if (at.warp % 2 == 0) {
      const Place here = at.again();
      float below[2][4];
      float* const a21 = A + 16 * at.warp * (kStride + 1) + 16 * kStride;
      merge<16>(below, a21 + 16, a21, a21 - 16 * kStride, true, true, here.lane);
      warp_barrier();
      SAMESTATE_UNROLL
      for (int j = 0; j < 2; ++j) {
        float* const to = a21 + here.lane / 4 * kStride + 8 * j + here.column;
        store_pair(to, below[j][0], below[j][1]);
        store_pair(to + 8 * kStride, below[j][2], below[j][3]);
      }
    }
    meet();
  }

  /// The block of the inverse below them, 16 x 16 of it a warp.
  SAMESTATE_DEVICE void merge_below(float (&below)[2][4]) const {
    const float* const A = s.a[group];
    const float* const a21 = A + 32 * kInverseStride;
    const int row = at.warp % 2;
    const int column = at.warp / 2;
    merge<32>(below, a21 + 16 * row * kInverseStride + 32, a21, A + 16 * column, row == 1, column == 1,
              recomputed(at.lane));
  }

  /// T rounded: what merge_below() made, and of the blocks on the diagonal a quarter of a row a thread.
  SAMESTATE_DEVICE void store_T(const float (&below)[2][4]) {
    const Place here = at.again();
    Bf16* const T = s.made[group].T;
    const int r = 32 * (here.warp / 2) + here.lane;
    const int first = 32 * (here.warp / 2) + 16 * (here.warp % 2);
    SAMESTATE_UNROLL
    for (int j = first; j < first + 16; j += 8) {
      float x[8];
      SAMESTATE_UNROLL
      for (int e = 0; e < 8; e += 4) {
        const int column = j + e;
        const Quad m = load_quad(&s.a[group][r * kInverseStride + column]);
        x[e] = column > r ? 0.0F : m.x;
        x[e + 1] = column + 1 > r ? 0.0F : m.y;
        x[e + 2] = column + 2 > r ? 0.0F : m.z;
        x[e + 3] = column + 3 > r ? 0.0F : m.w;
      }
      store_words(T, swizzled(r, 2 * j),
                  words(pack(x[0], x[1]), pack(x[2], x[3]), pack(x[4], x[5]), pack(x[6], x[7])));
    }
    store_matrices<false>(T, cell(here, 2 + here.warp % 2, here.warp / 2),
                          words(pack(below[0][0], below[0][1]), pack(below[0][2], below[0][3]),
                                pack(below[1][0], below[1][1]), pack(below[1][2], below[1][3])));
  }

 private:
  /// Byte of T or P that this lane passes to store_matrices for rows 16 i ... and columns 16 j ...
  SAMESTATE_DEVICE static int cell(const Place& at, int i, int j) {
    return (16 * i + 8 * (at.matrix % 2) + at.matrix_row) * 128 +
           ((32 * j + 16 * (at.matrix / 2)) ^ (at.matrix_row * 16));
  }

  template <bool diagonal, bool make_A, bool make_P>
  SAMESTATE_DEVICE void weigh_columns(const Place& at, int j, const float (&KK)[32], const float (&QK)[32],
                                      const Gates& y, const float (&left)[2], const float (&right)[2]) {
    float* const A = s.a[group];
    const float G_row[2] = {y.decay[at.row], y.decay[at.row + 8]};
    std::uint32_t x[4];
    SAMESTATE_UNROLL
    for (int half = 0; half < 2; ++half) {
      const int column = 16 * j + 8 * half + at.column;
      const Pair G_column = load_pair(&y.decay[column]);
      const Pair r = norm ? load_pair(&y.key_norm[column]) : Pair{1.0F, 1.0F};
      SAMESTATE_UNROLL
      for (int i = 0; i < 2; ++i) {
        const int e = 8 * j + 4 * half + 2 * i;
        float E[2] = {exponential2(G_row[i] - G_column.x), exponential2(G_row[i] - G_column.y)};
        if constexpr (diagonal) {  // above the diagonal an exponential may overflow: selected, not multiplied
          E[0] = at.row + 8 * i >= column ? E[0] : 0.0F;
          E[1] = at.row + 8 * i >= column + 1 ? E[1] : 0.0F;
        }
        if constexpr (norm) E[0] *= r.x, E[1] *= r.y;
        if constexpr (make_A) {
          store_pair(&A[(at.row + 8 * i) * kInverseStride + column], KK[e] * E[0] * left[i],
                     KK[e + 1] * E[1] * left[i]);
        }
        if constexpr (make_P) x[2 * half + i] = pack(QK[e] * E[0] * right[i], QK[e + 1] * E[1] * right[i]);
      }
    }
    if constexpr (make_P)
      store_matrices<false>(s.made[group].P, cell(at, at.warp, j), words(x[0], x[1], x[2], x[3]));
  }
};

}  // namespace samestate::cuda
