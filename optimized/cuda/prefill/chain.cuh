#pragma once

#include "optimized/cuda/prefill/prepare.cuh"

/// S through the chunks of one sequence, 64 value columns: the critical path of a call with few heads.
namespace samestate::cuda {

/// Byte of a value tile that this lane passes to load_matrices<true> and store_matrices<true>: 16 tokens further is
/// 2048 bytes further.
SAMESTATE_DEVICE int value_offset(const Place& at) {
  return (8 * (at.matrix / 2) + at.matrix_row) * 128 +
         ((32 * at.warp + 16 * (at.matrix % 2)) ^ (at.matrix_row * 16));
}

/// 16 tokens of V^T as left operand.
SAMESTATE_DEVICE void load_values(std::uint32_t (&v)[4], const Bf16* tile, int offset, int step) {
  load_matrices<true>(v, tile + (offset + 2048 * step) / 2);
}

/// The chain warpgroup. S^T is [64 value columns, 128 keys] in fp32, 64 registers a thread; every product takes its
/// left operand from registers, where an accumulator becomes an operand by rounding alone.
///
/// Arithmetic of a warp runs at half speed while products of its own are in flight (docs/kernels.md), so what can be
/// done by the output warpgroup is done there.
template <bool delta>
struct Chain {
  StateShared& s;
  Place at{};
  float S[2][32]{};            ///< by halves of the keys
  float X[32]{};               ///< S^T K^T, then V'^T
  std::uint32_t B[2][4][4]{};  ///< S rounded

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

  /// All chunks. Products in flight may not cross a loop's back edge: it lies where V' is readable.
  SAMESTATE_DEVICE void run(int chunks) {
    if (chunks == 0) return;
    s.k_ring.wait_full(0);
    begin_chunk(0, [](int) {});
    SAMESTATE_NO_UNROLL
    for (int n = 0; n < chunks - 1; ++n) {
      float U[2][32];
      update(n, U);
      s.k_ring.wait_full(n + 1);
      const float over = s.gates[s.t_ring.stage(n)].over[0];
      begin_chunk(n + 1, [&](int half) {
        if (half == 0)
          products_wait<1>();
        else
          products_wait<delta ? 1 : 0>();  // X of the first half is behind U of the second
        if (half == 1) s.k_ring.release(n), s.t_ring.release(n);
        sum_state(half, U[half], over);
      });
    }
    const int n = chunks - 1;
    float U[2][32];
    update(n, U);
    const float over = s.gates[s.t_ring.stage(n)].over[0];
    products_wait<0>();
    sum_state(0, U[0], over);
    sum_state(1, U[1], over);
    s.k_ring.release(n);
    s.t_ring.release(n);
  }

 private:
  /// S of half the keys before chunk n is made by `state(half)`, whose products are in flight; then X, R, V'.
  template <class State>
  SAMESTATE_DEVICE void begin_chunk(int n, State&& state) {
    s.state_ring.wait_empty(n);
    SAMESTATE_UNROLL
    for (int half = 0; half < 2; ++half) {
      state(half);
      multiply_keys(n, half);
    }
    s.state_ring.full[0].arrive_warp();
    if constexpr (delta) {
      float bV[32];
      s.t_ring.wait_full(n);
      weigh_values(n, bV);
      s.value_ring.wait_empty(n);  // a loop: the assembler leaves beta V above it, under X
      products_wait<0>();
      s.v_ring.release(n);
      new_values(n, bV);
    } else {
      s.t_ring.wait_full(n);
      products_wait<0>();
    }
  }

  /// X (+)= S^T K^T over one half of the keys, S rounded; the same S to the output.
  SAMESTATE_DEVICE void multiply_keys(int n, int half) {
    SAMESTATE_UNROLL
    for (int kk = 0; kk < 4; ++kk) {
      SAMESTATE_UNROLL
      for (int r = 0; r < 4; ++r) B[half][kk][r] = pack(S[half][8 * kk + 2 * r], S[half][8 * kk + 2 * r + 1]);
    }
    if constexpr (delta) {
      products_begin();
      SAMESTATE_UNROLL
      for (int kk = 0; kk < 4; ++kk)
        multiply(X, B[half][kk], by_rows(s.k[s.k_ring.stage(n)][half], kk), half + kk > 0);
      products_commit();
    }
    SAMESTATE_UNROLL
    for (int kk = 0; kk < 4; ++kk) hand_over(s.state[4 * half + kk], B[half][kk]);
  }

  SAMESTATE_DEVICE static void hand_over(Words (&to)[128], const std::uint32_t (&x)[4]) {
    to[thread_index() % 128] = words(x[0], x[1], x[2], x[3]);
  }

  /// (beta V)^T
  SAMESTATE_DEVICE void weigh_values(int n, float (&bV)[32]) {
    s.v_ring.wait_full(n);
    const float* const beta = s.gates[s.t_ring.stage(n)].beta;
    const int offset = value_offset(at);
    SAMESTATE_UNROLL
    for (int j = 0; j < 4; ++j) {
      std::uint32_t v[4];
      load_values(v, s.v[s.v_ring.stage(n)], offset, j);
      SAMESTATE_UNROLL
      for (int i = 0; i < 2; ++i) {
        const Pair b = load_pair(&beta[16 * j + 8 * i + at.column]);
        const int x = 8 * j + 4 * i;
        bV[x] = b.x * low(v[2 * i]), bV[x + 1] = b.y * high(v[2 * i]);
        bV[x + 2] = b.x * low(v[2 * i + 1]), bV[x + 3] = b.y * high(v[2 * i + 1]);
      }
    }
    SAMESTATE_UNROLL
    for (int i = 0; i < 32; ++i) pin(bV[i]);
  }

  /// X: V'^T = R^T T^T, R = beta V - beta e^G K S rounded. Readable at the end.
  SAMESTATE_DEVICE void new_values(int n, const float (&bV)[32]) {
    const float* const start = s.gates[s.t_ring.stage(n)].beta_start;
    std::uint32_t R[4][4];
    SAMESTATE_UNROLL
    for (int j = 0; j < 8; ++j) {
      const Pair e = load_pair(&start[8 * j + at.column]);
      SAMESTATE_UNROLL
      for (int i = 0; i < 2; ++i) {
        const int x = 4 * j + 2 * i;
        R[j / 2][2 * (j % 2) + i] = pack(fused(-e.x, X[x], bV[x]), fused(-e.y, X[x + 1], bV[x + 1]));
      }
    }
    products_begin();
    SAMESTATE_UNROLL
    for (int kk = 0; kk < 4; ++kk) multiply(X, R[kk], by_rows(s.t[s.t_ring.stage(n)], kk), kk > 0);
    products_commit();
    products_wait<0>();
  }

  /// Issues U = K^T (e^{G_C - G} V'), halves of the keys one after the other; V' to the output.
  SAMESTATE_DEVICE void update(int n, float (&U)[2][32]) {
    std::uint32_t D[4][4];
    if constexpr (!delta) {
      s.v_ring.wait_full(n);
      const int offset = value_offset(at);
      SAMESTATE_UNROLL
      for (int j = 0; j < 4; ++j) {
        std::uint32_t v[4];
        load_values(v, s.v[s.v_ring.stage(n)], offset, j);
        SAMESTATE_UNROLL
        for (int i = 0; i < 4; ++i) X[8 * j + 2 * i] = low(v[i]), X[8 * j + 2 * i + 1] = high(v[i]);
      }
      s.v_ring.release(n);
    }
    const float* const to_end = s.gates[s.t_ring.stage(n)].to_end;
    SAMESTATE_UNROLL
    for (int j = 0; j < 8; ++j) {
      const Pair e = load_pair(&to_end[8 * j + at.column]);
      SAMESTATE_UNROLL
      for (int i = 0; i < 2; ++i)
        D[j / 2][2 * (j % 2) + i] = pack(X[4 * j + 2 * i] * e.x, X[4 * j + 2 * i + 1] * e.y);
    }
    SAMESTATE_UNROLL
    for (int half = 0; half < 2; ++half) {
      products_begin();
      SAMESTATE_UNROLL
      for (int kk = 0; kk < 4; ++kk)
        multiply(U[half], D[kk], by_columns(s.k[s.k_ring.stage(n)][half], kk), kk > 0);
      products_commit();
    }
    if constexpr (!delta) s.value_ring.wait_empty(n);
    SAMESTATE_UNROLL
    for (int j = 0; j < 4; ++j) {
      std::uint32_t V[4];
      SAMESTATE_UNROLL
      for (int i = 0; i < 4; ++i) V[i] = pack(X[8 * j + 2 * i], X[8 * j + 2 * i + 1]);
      hand_over(s.values[j], V);
    }
    s.value_ring.full[0].arrive_warp();
  }

  /// The unit sums a chunk, an FMA adds it to the state: S is rounded to nearest once a chunk.
  SAMESTATE_DEVICE void sum_state(int half, const float (&U)[32], float over) {
    SAMESTATE_UNROLL
    for (int i = 0; i < 32; ++i) S[half][i] = fused(S[half][i], over, U[i]);
  }

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

/// The output warpgroup: O^T of 64 value columns from what the chain hands over.
struct Output {
  StateShared& s;
  Place at{};

  SAMESTATE_DEVICE void run(int chunks) {
    SAMESTATE_NO_UNROLL
    for (int n = 0; n < chunks; ++n) {
      float O[32];
      read_state(n, O);
      add_values(n, O);
      store(O);
    }
  }

 private:
  /// O^T = scale (S^T Q^T) o e^G
  SAMESTATE_DEVICE void read_state(int n, float (&O)[32]) {
    std::uint32_t B[8][4];
    s.state_ring.wait_full(n);
    SAMESTATE_UNROLL
    for (int kk = 0; kk < 8; ++kk) take(s.state[kk], B[kk]);
    s.state_ring.release(n);
    s.q_ring.wait_full(n);
    products_begin();
    SAMESTATE_UNROLL
    for (int kk = 0; kk < 8; ++kk)
      multiply(O, B[kk], by_rows(s.q[s.q_ring.stage(n)][kk / 4], kk % 4), kk > 0);
    products_commit();
    s.t_ring.wait_full(n);  // the gates
    const float* const start = s.gates[s.t_ring.stage(n)].out_start;
    Pair e[8];
    SAMESTATE_UNROLL
    for (int j = 0; j < 8; ++j) e[j] = load_pair(&start[8 * j + at.column]);
    s.t_ring.release(n);
    s.p_ring.wait_full(n);
    products_wait<0>();
    s.q_ring.release(n);
    SAMESTATE_UNROLL
    for (int i = 0; i < 32; ++i) O[i] *= i % 2 == 0 ? e[i / 4].x : e[i / 4].y;
  }

  /// O^T += V'^T P^T
  SAMESTATE_DEVICE void add_values(int n, float (&O)[32]) {
    std::uint32_t V[4][4];
    s.value_ring.wait_full(n);
    SAMESTATE_UNROLL
    for (int kk = 0; kk < 4; ++kk) take(s.values[kk], V[kk]);
    s.value_ring.release(n);
    products_begin();
    SAMESTATE_UNROLL
    for (int kk = 0; kk < 4; ++kk) multiply(O, V[kk], by_rows(s.p[s.p_ring.stage(n)], kk), true);
    products_commit();
    s.o_ring.wait_empty(n);
    products_wait<0>();
    s.p_ring.release(n);
  }

  SAMESTATE_DEVICE void store(const float (&O)[32]) {
    const int offset = value_offset(at);
    SAMESTATE_UNROLL
    for (int j = 0; j < 4; ++j) {
      const float* const x = &O[8 * j];
      store_matrices<true>(s.o, offset + 2048 * j,
                           words(pack(x[0], x[1]), pack(x[2], x[3]), pack(x[4], x[5]), pack(x[6], x[7])));
    }
    fence_async();
    s.o_ring.full[0].arrive_warp();
  }

  SAMESTATE_DEVICE static void take(const Words (&from)[128], std::uint32_t (&x)[4]) {
    const Words all = from[thread_index() % 128];
    x[0] = all.x, x[1] = all.y, x[2] = all.z, x[3] = all.w;
  }
};

}  // namespace samestate::cuda
