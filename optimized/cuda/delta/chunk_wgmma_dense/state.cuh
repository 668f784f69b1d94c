#pragma once

#include "optimized/cuda/delta/chunk_wgmma_dense/prepare.cuh"

/// The work of a state warpgroup: it carries 64 value columns of S through the chunks of one sequence. S^T is
/// [64, 128 keys] in fp32, 64 registers per thread; every product takes its left operand from registers,
/// where rounding alone turns an accumulator into an operand.
namespace samestate::cuda {

/// The parts. `SharedMemory` has tiles k, q, v, o and prepared chunks with the first three's and their rings; `Output`
/// tile(n) of O of chunk n, begin(n) before it may be written, and end(n) after it is.
template <class SharedMemory, bool delta, class Output>
struct StateParts {
  SharedMemory& s;
  int group;  ///< which of the block's state warpgroups
  Output output;
  int first_chunk = 0;  ///< first chunk of a segment; those before it only enter S
  Place at{};
  float S[2][32]{};            ///< one for each half of the keys
  float X[32]{};               ///< S^T K^T, then V'^T, then a half of the update
  float O[32]{};               ///< O^T
  std::uint32_t B[2][4][4]{};  ///< S rounded
  std::uint32_t V[4][4]{};     ///< V'^T rounded

  SAMESTATE_DEVICE void load_state(const float* from, int keys, int columns, int dv) {
    each_cell([&](int key, int column, float& x) {
      x = from && key < keys && column < columns ? from[static_cast<std::int64_t>(key) * dv + column] : 0.0F;
    });
  }
  SAMESTATE_DEVICE void store_state(float* to, int keys, int columns, int dv) {
    each_cell([&](int key, int column, float& x) {
      if (key < keys && column < columns) to[static_cast<std::int64_t>(key) * dv + column] = x;
    });
  }

 protected:
  SAMESTATE_DEVICE const Prepared& made(int n) const { return s.made[s.made_ring.stage(n)]; }
  /// Returns the index of chunk n in the rings of the data that only O needs.
  SAMESTATE_DEVICE int of_output(int n) const {
    if constexpr (SharedMemory::kSegments)
      return n - first_chunk;
    else
      return n;
  }

  /// Byte of a value tile that this lane passes to load_matrices<true> and store_matrices<true>; 16 tokens further is
  /// 2048 bytes further.
  SAMESTATE_DEVICE int value_offset() const {
    return (8 * (at.matrix / 2) + at.matrix_row) * 128 +
           ((32 * at.warp + 16 * (at.matrix % 2)) ^ (at.matrix_row * 16));
  }

  /// 16 tokens of V^T as left operand.
  SAMESTATE_DEVICE void load_values(std::uint32_t (&v)[4], int n, int step) const {
    load_matrices<true>(v, s.v[s.value_ring.stage(n)][group] + (value_offset() + 2048 * step) / 2);
  }

  /// Half of the keys of S, rounded.
  SAMESTATE_DEVICE void round_state(int half) {
    SAMESTATE_UNROLL
    for (int kk = 0; kk < 4; ++kk) {
      SAMESTATE_UNROLL
      for (int r = 0; r < 4; ++r) B[half][kk][r] = pack(S[half][8 * kk + 2 * r], S[half][8 * kk + 2 * r + 1]);
    }
  }

  /// X (+)= S^T K^T over half of the keys.
  SAMESTATE_DEVICE void multiply_keys(int n, int half) {
    products_begin();
    SAMESTATE_UNROLL
    for (int kk = 0; kk < 4; ++kk)
      multiply(X, B[half][kk], by_rows(s.k[s.key_ring.stage(n)][half], kk), half + kk > 0);
    products_commit();
  }

  /// O = S^T Q^T
  SAMESTATE_DEVICE void multiply_queries(int n) {
    products_begin();
    SAMESTATE_UNROLL
    for (int kk = 0; kk < 8; ++kk)
      multiply(O, B[kk / 4][kk % 4], by_rows(s.q[s.query_ring.stage(of_output(n))][kk / 4], kk % 4), kk > 0);
    products_commit();
  }

  /// O <- scale e^G o O
  SAMESTATE_DEVICE void scale_output(int n) {
    const float* const start = made(n).out_start;
    SAMESTATE_UNROLL
    for (int j = 0; j < 8; ++j) {
      const Pair e = load_pair(&start[8 * j + at.column]);
      O[4 * j] *= e.x, O[4 * j + 1] *= e.y, O[4 * j + 2] *= e.x, O[4 * j + 3] *= e.y;
    }
  }

  /// O += V'^T P^T
  SAMESTATE_DEVICE void multiply_attention(int n) {
    products_begin();
    SAMESTATE_UNROLL
    for (int kk = 0; kk < 4; ++kk) multiply(O, V[kk], by_rows(made(n).P, kk), true);
    products_commit();
  }

  /// (beta V)^T
  SAMESTATE_DEVICE void weigh_values(int n, float (&bV)[32]) const {
    const float* const beta = made(n).beta;
    SAMESTATE_UNROLL
    for (int j = 0; j < 4; ++j) {
      std::uint32_t v[4];
      load_values(v, n, j);
      SAMESTATE_UNROLL
      for (int i = 0; i < 2; ++i) {
        const Pair b = load_pair(&beta[16 * j + 8 * i + at.column]);
        const int x = 8 * j + 4 * i;
        bV[x] = b.x * low(v[2 * i]), bV[x + 1] = b.y * high(v[2 * i]);
        bV[x + 2] = b.x * low(v[2 * i + 1]), bV[x + 3] = b.y * high(v[2 * i + 1]);
      }
    }
  }

  /// R^T = (beta V - beta e^G K S)^T rounded, where X holds S^T K^T.
  SAMESTATE_DEVICE void residual(int n, const float (&bV)[32], std::uint32_t (&R)[4][4]) const {
    const float* const start = made(n).beta_start;
    SAMESTATE_UNROLL
    for (int j = 0; j < 8; ++j) {
      const Pair e = load_pair(&start[8 * j + at.column]);
      SAMESTATE_UNROLL
      for (int i = 0; i < 2; ++i) {
        const int x = 4 * j + 2 * i;
        R[j / 2][2 * (j % 2) + i] = pack(fused(-e.x, X[x], bV[x]), fused(-e.y, X[x + 1], bV[x + 1]));
      }
    }
  }

  /// The same, and V weighed as it is read: 32 registers fewer.
  SAMESTATE_DEVICE void residual(int n, std::uint32_t (&R)[4][4]) const {
    const float* const beta = made(n).beta;
    const float* const start = made(n).beta_start;
    SAMESTATE_UNROLL
    for (int j = 0; j < 4; ++j) {
      std::uint32_t v[4];
      load_values(v, n, j);
      SAMESTATE_UNROLL
      for (int i = 0; i < 2; ++i) {
        const Pair b = load_pair(&beta[16 * j + 8 * i + at.column]);
        const Pair e = load_pair(&start[16 * j + 8 * i + at.column]);
        const float* const x = &X[8 * j + 4 * i];
        R[j][2 * i] = pack(fused(-e.x, x[0], b.x * low(v[2 * i])), fused(-e.y, x[1], b.y * high(v[2 * i])));
        R[j][2 * i + 1] =
            pack(fused(-e.x, x[2], b.x * low(v[2 * i + 1])), fused(-e.y, x[3], b.y * high(v[2 * i + 1])));
      }
    }
  }

  /// X = V'^T = R^T T^T
  SAMESTATE_DEVICE void multiply_inverse(int n, const std::uint32_t (&R)[4][4]) {
    products_begin();
    SAMESTATE_UNROLL
    for (int kk = 0; kk < 4; ++kk) multiply(X, R[kk], by_rows(made(n).T, kk), kk > 0);
    products_commit();
  }

  /// D = (e^{G_C - G} V')^T rounded, and V' itself to V; V' is in X, without the delta rule V in the tile.
  SAMESTATE_DEVICE void round_values(int n, std::uint32_t (&D)[4][4]) {
    const float* const to_end = made(n).to_end;
    if constexpr (!delta) {
      SAMESTATE_UNROLL
      for (int j = 0; j < 4; ++j) load_values(V[j], n, j);
    }
    SAMESTATE_UNROLL
    for (int j = 0; j < 8; ++j) {
      const Pair e = load_pair(&to_end[8 * j + at.column]);
      SAMESTATE_UNROLL
      for (int i = 0; i < 2; ++i) {
        const std::uint32_t v = V[j / 2][2 * (j % 2) + i];
        const float x = delta ? X[4 * j + 2 * i] : low(v);
        const float y = delta ? X[4 * j + 2 * i + 1] : high(v);
        D[j / 2][2 * (j % 2) + i] = pack(x * e.x, y * e.y);
      }
    }
    if constexpr (delta) {
      SAMESTATE_UNROLL
      for (int j = 0; j < 16; ++j) V[j / 4][j % 4] = pack(X[2 * j], X[2 * j + 1]);
    }
  }

  /// U = D K over half of the keys.
  SAMESTATE_DEVICE void multiply_update(int n, int half, const std::uint32_t (&D)[4][4], float (&U)[32]) {
    products_begin();
    SAMESTATE_UNROLL
    for (int kk = 0; kk < 4; ++kk) multiply(U, D[kk], by_columns(s.k[s.key_ring.stage(n)][half], kk), kk > 0);
    products_commit();
  }

  /// The unit sums a chunk, an FMA adds it to the state: S is rounded to nearest once a chunk.
  SAMESTATE_DEVICE void sum_state(int half, const float (&U)[32], float over) {
    SAMESTATE_UNROLL
    for (int i = 0; i < 32; ++i) S[half][i] = fused(S[half][i], over, U[i]);
  }

  /// O of chunk n to its tile.
  SAMESTATE_DEVICE void store_output(int n) {
    const int m = of_output(n);
    output.begin(m);
    SAMESTATE_UNROLL
    for (int j = 0; j < 4; ++j) {
      const float* const x = &O[8 * j];
      store_matrices<true>(output.tile(m), value_offset() + 2048 * j,
                           words(pack(x[0], x[1]), pack(x[2], x[3]), pack(x[4], x[5]), pack(x[6], x[7])));
    }
    fence_async();
    output.end(m);
  }

 private:
  template <class Cell>
  SAMESTATE_DEVICE void each_cell(Cell&& cell) {
    SAMESTATE_UNROLL
    for (int half = 0; half < 2; ++half) {
      SAMESTATE_UNROLL
      for (int i = 0; i < 32; ++i)
        cell(64 * half + i / 4 * 8 + at.column + i % 2, at.row + 8 * (i % 4 / 2), S[half][i]);
    }
  }
};

}  // namespace samestate::cuda
