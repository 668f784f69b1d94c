#pragma once

#include "optimized/cuda/simt/layout.cuh"

/// 32 value columns of S through the chunks of one sequence.
///
///   R = beta V - beta e^G (K S)   V' = T R   O = scale e^G (Q S) + P V'   S <- e^{G_C} S + K^T (e^{G_C - G} V')
namespace samestate::cuda::simt {

struct ChainShared {
  alignas(16) float k[2][kChunk * kKeyStride];
  alignas(16) float q[kChunk * kKeyStride];
  alignas(16) float v[2][kChunk * kValueStride];
  alignas(16) float T[kChunk * kSquareStride];
  alignas(16) float P[kChunk * kSquareStride];
  alignas(16) float S[kKeys * kValueStride];
  alignas(16) float R[kChunk * kValueStride];  ///< then e^{G_C - G} V'
  alignas(16) float V[kChunk * kValueStride];  ///< V'
  alignas(16) float gates[2][Prepared::kGates];
};
static_assert(sizeof(ChainShared) <= 227 * 1024,
              "a block of compute capability 9.0 has 227 KiB of shared memory");

/// A thread holds four keys of four columns of S, and of X, V' and O two rows of four columns: of the rows g, 31 - g,
/// 32 + g, 63 - g (which cost every group g of a triangle the same) the first and third, or the others. Products with a
/// triangle are shared by the two lanes that hold them, each half of the depth: a float of shared memory serves more.
template <bool delta>
class ChainBlock {
 public:
  SAMESTATE_DEVICE ChainBlock(const Work& work, ChainShared& shared) : c(work), p(work.p), s(shared) {}

  /// Block `block` of Work::chain_blocks().
  SAMESTATE_DEVICE void run(std::int64_t block) {
    column = static_cast<int>(block % c.value_tiles()) * kColumns;
    head = block / c.value_tiles() % p.Hv;
    const std::int64_t n = block / c.value_tiles() / p.Hv;
    first = c.first_token(n), end = c.first_token(n + 1);
    slot = c.first_slot(n);
    const std::int64_t state = (n * p.Hv + head) * p.dk * p.dv + column;
    const auto chunks = static_cast<int>((end - first + p.chunk - 1) / p.chunk);
    each_cell([&](int key, int value, float& x) {
      const bool exists = p.initial_state && key < p.dk && column + value < p.dv;
      x = exists ? p.initial_state[state + static_cast<std::int64_t>(key) * p.dv + value] : 0.0F;
    });
    write_state();
    if (chunks > 0) {
      fetch_keys_and_values(0);
      fetch_queries(0);
      fetch_square(s.T, 0, &Prepared::T);
      fetch_square(s.P, 0, &Prepared::P);
    }
    SAMESTATE_NO_UNROLL
    for (int m = 0; m < chunks; ++m) {
      const bool more = m + 1 < chunks;
      copy_wait();
      block_barrier();  // chunk m and S are there, chunk m - 1 has been read
      if (more) fetch_keys_and_values(m + 1);
      read_state(m);
      block_barrier();  // R is there, Q has been read
      if (more) fetch_queries(m + 1);
      new_values(m);
      block_barrier();  // V' is there, R and T have been read
      if (more) fetch_square(s.T, m + 1, &Prepared::T);
      attend(m);
      block_barrier();  // e^{G_C - G} V' is there, P has been read
      if (more) fetch_square(s.P, m + 1, &Prepared::P);
      update(m);
    }
    if (!p.final_state) return;
    each_cell([&](int key, int value, float& x) {
      if (key < p.dk && column + value < p.dv)
        p.final_state[state + static_cast<std::int64_t>(key) * p.dv + value] = x;
    });
  }

 private:
  SAMESTATE_DEVICE int row(int i) const { return 32 * i + (half == 0 ? group : 31 - group); }
  /// beta, beta_start, to_end or out_start of chunk m.
  SAMESTATE_DEVICE const float* gate(int m, int which) const { return s.gates[m % 2] + which * kChunk; }

  SAMESTATE_DEVICE int tokens_of(int m) const {
    const std::int64_t left = end - first - static_cast<std::int64_t>(m) * p.chunk;
    return static_cast<int>(left < p.chunk ? left : p.chunk);
  }
  SAMESTATE_DEVICE std::int64_t token_of(int m) const {
    return first + static_cast<std::int64_t>(m) * p.chunk;
  }
  SAMESTATE_DEVICE const Prepared& prepared(int m) const { return c.prepared[(slot + m) * p.Hv + head]; }

  SAMESTATE_DEVICE void fetch_keys_and_values(int m) {
    load_rows(s.k[m % 2], kKeyStride, p.k + (token_of(m) * p.Hk + c.key_head(head)) * p.dk, p.Hk * p.dk,
              tokens_of(m), p.dk, kChunk, kKeys, p.dk % 4 == 0);
    load_rows(s.v[m % 2], kValueStride, p.v + (token_of(m) * p.Hv + head) * p.dv + column, p.Hv * p.dv,
              tokens_of(m), p.dv - column, kChunk, kColumns, p.dv % 4 == 0);
    if (thread_index() < Prepared::kGates / 4)
      copy_async_16(s.gates[m % 2] + 4 * thread_index(), prepared(m).beta + 4 * thread_index());
  }
  SAMESTATE_DEVICE void fetch_queries(int m) {
    load_rows(s.q, kKeyStride, p.q + (token_of(m) * p.Hk + c.key_head(head)) * p.dk, p.Hk * p.dk,
              tokens_of(m), p.dk, kChunk, kKeys, p.dk % 4 == 0);
  }
  SAMESTATE_DEVICE void fetch_square(float* to, int m, float (Prepared::*matrix)[kChunk * kChunk]) {
    if (!delta && matrix == &Prepared::T) return;
    const float* const from = prepared(m).*matrix;
    SAMESTATE_UNROLL
    for (int i = 0; i < kChunk * kChunk / 4 / kThreads; ++i) {
      const int e = i * kThreads + thread_index();
      copy_async_16(to + e / (kChunk / 4) * kSquareStride + e % (kChunk / 4) * 4, from + 4 * e);
    }
  }

  /// O = scale e^G (Q S), R = beta V - beta e^G (K S).
  SAMESTATE_DEVICE void read_state(int m) {
    float X[2][4];
    clear(X), clear(O);
    const float* const keys = s.k[m % 2];
    const int depth = (p.dk + 3) / 4 * 4;
    for (int l = 0; l < depth; l += 4) {
      Quad state[4];
      SAMESTATE_UNROLL
      for (int e = 0; e < 4; ++e) state[e] = load_quad(s.S + (l + e) * kValueStride + 4 * quad);
      SAMESTATE_UNROLL
      for (int i = 0; i < 2; ++i) {
        if constexpr (delta) add(X[i], load_quad(keys + row(i) * kKeyStride + l), state);
        add(O[i], load_quad(s.q + row(i) * kKeyStride + l), state);
      }
    }
    SAMESTATE_UNROLL
    for (int i = 0; i < 2; ++i) {
      const float out_start = gate(m, 3)[row(i)];
      SAMESTATE_UNROLL
      for (int j = 0; j < 4; ++j) O[i][j] *= out_start;
      if constexpr (delta) {
        const Quad v = load_quad(s.v[m % 2] + row(i) * kValueStride + 4 * quad);
        const float beta = gate(m, 0)[row(i)];
        const float beta_start = gate(m, 1)[row(i)];
        float R[4];
        SAMESTATE_UNROLL
        for (int j = 0; j < 4; ++j) R[j] = fused(-beta_start, X[i][j], beta * part(v, j));
        store_quad(s.R + row(i) * kValueStride + 4 * quad, R);
      }
    }
  }

  /// V' = T R, without the delta rule V.
  SAMESTATE_DEVICE void new_values(int m) {
    if constexpr (delta) {
      clear(V);
      multiply_lower(V, s.T, s.R);
    } else {
      SAMESTATE_UNROLL
      for (int i = 0; i < 2; ++i) {
        const Quad v = load_quad(s.v[m % 2] + row(i) * kValueStride + 4 * quad);
        SAMESTATE_UNROLL
        for (int j = 0; j < 4; ++j) V[i][j] = part(v, j);
      }
    }
    SAMESTATE_UNROLL
    for (int i = 0; i < 2; ++i) store_quad(s.V + row(i) * kValueStride + 4 * quad, V[i]);
  }

  /// O += P V' to memory; e^{G_C - G} V'.
  SAMESTATE_DEVICE void attend(int m) {
    SAMESTATE_UNROLL
    for (int i = 0; i < 2; ++i) {
      const float to_end = gate(m, 2)[row(i)];
      SAMESTATE_UNROLL
      for (int j = 0; j < 4; ++j) V[i][j] *= to_end;
      store_quad(s.R + row(i) * kValueStride + 4 * quad, V[i]);
    }
    multiply_lower(O, s.P, s.V);
    const int value = column + 4 * quad;
    SAMESTATE_UNROLL
    for (int i = 0; i < 2; ++i) {
      if (row(i) >= tokens_of(m)) continue;
      float* const o = p.o + ((token_of(m) + row(i)) * p.Hv + head) * p.dv + value;
      if (p.dv % 4 == 0 && value < p.dv) {
        store_quad(o, O[i]);
      } else {
        SAMESTATE_UNROLL
        for (int j = 0; j < 4; ++j)
          if (value + j < p.dv) o[j] = O[i][j];
      }
    }
  }

  /// S <- e^{G_C} S + K^T (e^{G_C - G} V').
  SAMESTATE_DEVICE void update(int m) {
    float U[4][4];
    SAMESTATE_UNROLL
    for (int i = 0; i < 4; ++i) clear_row(U[i]);
    const float* const keys = s.k[m % 2] + 4 * at.row;
    const float* const values = s.R + 4 * at.column;
    SAMESTATE_NO_UNROLL
    for (int t = 0; t < kChunk; t += 8) {
      SAMESTATE_UNROLL
      for (int e = 0; e < 8; ++e) {
        const Quad k = load_quad(keys + (t + e) * kKeyStride);
        const Quad v = load_quad(values + (t + e) * kValueStride);
        SAMESTATE_UNROLL
        for (int i = 0; i < 4; ++i) {
          SAMESTATE_UNROLL
          for (int j = 0; j < 4; ++j) U[i][j] = fused(part(k, i), part(v, j), U[i][j]);
        }
      }
    }
    const float over = gate(m, 4)[0];
    SAMESTATE_UNROLL
    for (int i = 0; i < 4; ++i) {
      SAMESTATE_UNROLL
      for (int j = 0; j < 4; ++j) S[i][j] = fused(S[i][j], over, U[i][j]);
    }
    write_state();
  }

  /// sums += L X, L lower triangular [64, 64].
  SAMESTATE_DEVICE void multiply_lower(float (&sums)[2][4], const float* L, const float* X) const {
    const int block = warp_index() / 2 * 4;  // the first of the warp's groups
    const int depths[4] = {block + 4, 32 - block, block + 36, 64 - block};
    const int rows[4] = {group, 31 - group, 32 + group, 63 - group};
    float all[4][4];
    SAMESTATE_UNROLL
    for (int i = 0; i < 4; ++i) clear_row(all[i]);
    SAMESTATE_NO_UNROLL
    for (int l = 0; l < 64 - block; l += 8) {
      Quad x[4];
      SAMESTATE_UNROLL
      for (int e = 0; e < 4; ++e) x[e] = load_quad(X + (l + 4 * half + e) * kValueStride + 4 * quad);
      SAMESTATE_UNROLL
      for (int i = 0; i < 4; ++i)
        if (l < depths[i]) add(all[i], load_quad(L + rows[i] * kSquareStride + l + 4 * half), x);
    }
    SAMESTATE_UNROLL
    for (int i = 0; i < 2; ++i) {
      SAMESTATE_UNROLL
      for (int j = 0; j < 4; ++j) {
        const float other = shuffle_xor(half == 0 ? all[2 * i + 1][j] : all[2 * i][j], 4);
        sums[i][j] += (half == 0 ? all[2 * i][j] : all[2 * i + 1][j]) + other;
      }
    }
  }

  /// sums += left over four terms.
  SAMESTATE_DEVICE static void add(float (&sums)[4], const Quad& left, const Quad (&right)[4]) {
    SAMESTATE_UNROLL
    for (int e = 0; e < 4; ++e) {
      SAMESTATE_UNROLL
      for (int j = 0; j < 4; ++j) sums[j] = fused(part(left, e), part(right[e], j), sums[j]);
    }
  }
  SAMESTATE_DEVICE static void clear_row(float (&x)[4]) { x[0] = x[1] = x[2] = x[3] = 0.0F; }
  SAMESTATE_DEVICE static void clear(float (&x)[2][4]) { clear_row(x[0]), clear_row(x[1]); }

  SAMESTATE_DEVICE void write_state() {
    SAMESTATE_UNROLL
    for (int i = 0; i < 4; ++i) store_quad(s.S + (4 * at.row + i) * kValueStride + 4 * at.column, S[i]);
  }
  template <class Cell>
  SAMESTATE_DEVICE void each_cell(Cell&& cell) {
    SAMESTATE_UNROLL
    for (int i = 0; i < 4; ++i) {
      SAMESTATE_UNROLL
      for (int j = 0; j < 4; ++j) cell(4 * at.row + i, 4 * at.column + j, S[i][j]);
    }
  }

  const Work& c;
  const Parameters<float>& p;
  ChainShared& s;
  Place at{8};  ///< in S
  int quad = warp_index() % 2 * 4 + lane_index() % 4, half = lane_index() / 4 % 2,
      group = warp_index() / 2 * 4 + lane_index() / 8;
  int column = 0;  ///< the first of the block's
  std::int64_t head = 0, first = 0, end = 0, slot = 0;
  float S[4][4], V[2][4], O[2][4];
};

}  // namespace samestate::cuda::simt
