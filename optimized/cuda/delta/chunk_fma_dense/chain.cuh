#pragma once

#include "optimized/cuda/delta/chunk_fma_dense/transport.cuh"

/// 32 value columns of S through the chunks of one sequence.
///
///   R = beta V - beta e^G (K S)   V' = T R   O = scale e^G (Q S) + P V'   S <- e^{G_C} S + K^T (e^{G_C - G} V')
namespace samestate::cuda::simt {

/// Four floats of row `row`, of 32, from column 4 `quad` on. Lanes whose rows are 1, 4, 16 or 32 apart meet different banks.
SAMESTATE_DEVICE int cell(int row, int quad) {
  return row * kColumns + 4 * (quad ^ 2 * ((row ^ row / 4 ^ row / 16 ^ row / 32) % 4));
}

/// T or P of chunk m.
SAMESTATE_DEVICE void fetch_square(const Chain& at, float* to, float (Prepared::*matrix)[kChunk * kChunk],
                                   int m) {
  const float* const from = at.prepared(m).*matrix;
  SAMESTATE_UNROLL
  for (int i = 0; i < kChunk * kChunk / 4 / kThreads; ++i) {
    const int e = i * kThreads + thread_index();
    const int row = e / (kChunk / 4);
    const int column = e % (kChunk / 4) * 4;
    if (below_diagonal(row, column)) copy_async_16(to + row * kSquareStride + column, from + 4 * e);
  }
}

struct ChainShared {
  alignas(16) float k[2][kChunk * kKeyStride];
  alignas(16) float q[kChunk * kKeyStride];
  alignas(16) float v[2][kChunk * kValueStride];
  alignas(16) float T[kChunk * kSquareStride];
  alignas(16) float P[kChunk * kSquareStride];
  alignas(16) float S[kKeys * kColumns];   ///< cell(), as R and V
  alignas(16) float R[kChunk * kColumns];  ///< then e^{G_C - G} V'
  alignas(16) float V[kChunk * kColumns];  ///< V'
  alignas(16) float gates[2][Prepared::kGates];
};
static_assert(sizeof(ChainShared) <= 227 * 1024,
              "a block of compute capability 9.0 has 227 KiB of shared memory");

/// A float of shared memory costs a lane as much as an FMA costs a warp, so that products go by 16 x 4 results a thread: four
/// neighbouring lanes have the same results, each a quarter of the depth, and share out the sums in the end. A thread
/// then holds of S four keys, and of X, V' and O two rows, of four columns.
template <bool delta>
class ChainBlock {
 public:
  static constexpr int kThreads = simt::kThreads;

  SAMESTATE_DEVICE ChainBlock(const Work& work, ChainShared& shared) : c(work), p(work.p), s(shared) {}

  /// Block `block` of Work::chain_blocks().
  SAMESTATE_DEVICE void run(std::int64_t block) {
    at = Chain(c, block);
    const std::int64_t state = at.state;
    const int column = at.column;
    const int chunks = at.chunks;
    each_cell([&](int key, int value, float& x) {
      const bool exists = p.initial_state && key < p.dk && column + value < p.dv;
      x = exists ? p.initial_state[state + static_cast<std::int64_t>(key) * p.dv + value] : 0.0F;
    });
    write_state();
    if (chunks > 0) {
      fetch_keys_and_values(0);
      fetch_keys(at, {}, s.q, p.q, 0);
      fetch_T(0);
      fetch_square(at, s.P, &Prepared::P, 0);
    }
    SAMESTATE_NO_UNROLL
    for (int m = 0; m < chunks; ++m) {
      const bool more = m + 1 < chunks;
      copy_wait();
      block_barrier();  // chunk m and S are there, chunk m - 1 has been read
      if (more) fetch_keys_and_values(m + 1);
      read_state(m);
      block_barrier();  // R is there, Q has been read
      if (more) fetch_keys(at, {}, s.q, p.q, m + 1);
      new_values(m);
      block_barrier();  // V' is there, R and T have been read
      if (more) fetch_T(m + 1);
      attend(m);
      block_barrier();  // e^{G_C - G} V' is there, P has been read
      if (more) fetch_square(at, s.P, &Prepared::P, m + 1);
      update(m);
    }
    if (!p.final_state) return;
    each_cell([&](int key, int value, float& x) {
      if (key < p.dk && column + value < p.dv)
        p.final_state[state + static_cast<std::int64_t>(key) * p.dv + value] = x;
    });
  }

 private:
  SAMESTATE_DEVICE int row(int i) const { return 16 * quarter + 8 * i + group; }
  SAMESTATE_DEVICE int key(int i) const { return 32 * quarter + 4 * group + i; }
  /// beta, beta_start, to_end or out_start of chunk m.
  SAMESTATE_DEVICE const float* gate(int m, int which) const { return s.gates[m % 2] + which * kChunk; }

  SAMESTATE_DEVICE void fetch_keys_and_values(int m) {
    fetch_keys(at, {}, s.k[m % 2], p.k, m);
    fetch_values(at, {}, s.v[m % 2], m);
    fetch_gates(at, {}, s.gates[m % 2], m);
  }
  SAMESTATE_DEVICE void fetch_T(int m) {
    if constexpr (delta) fetch_square(at, s.T, &Prepared::T, m);
  }

  /// O = scale e^G (Q S), R = beta V - beta e^G (K S).
  SAMESTATE_DEVICE void read_state(int m) {
    float X[2][4];
    float all[2][4][2][4] = {};  // K S, Q S; by who keeps them
    const float* const keys = s.k[m % 2];
    const int depth = (p.dk + 15) / 16 * 16;
    SAMESTATE_NO_UNROLL
    for (int l = 4 * quarter; l < depth; l += 16) {
      Quad state[4];
      SAMESTATE_UNROLL
      for (int e = 0; e < 4; ++e) state[e] = load_quad(s.S + cell(l + e, quad));
      SAMESTATE_UNROLL
      for (int i = 0; i < 8; ++i) {
        const int cell = (8 * i + group) * kKeyStride + l;
        if constexpr (delta) add(all[0][i / 2][i % 2], load_quad(keys + cell), state);
        add(all[1][i / 2][i % 2], load_quad(s.q + cell), state);
      }
    }
    if constexpr (delta) share_out(all[0], X);
    share_out(all[1], O);
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
        store_quad(s.R + cell(row(i), quad), R);
      }
    }
  }

  /// V' = T R, without the delta rule V.
  SAMESTATE_DEVICE void new_values(int m) {
    if constexpr (delta) {
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
    for (int i = 0; i < 2; ++i) store_quad(s.V + cell(row(i), quad), V[i]);
  }

  /// O += P V' to memory; e^{G_C - G} V'.
  SAMESTATE_DEVICE void attend(int m) {
    SAMESTATE_UNROLL
    for (int i = 0; i < 2; ++i) {
      const float to_end = gate(m, 2)[row(i)];
      SAMESTATE_UNROLL
      for (int j = 0; j < 4; ++j) V[i][j] *= to_end;
      store_quad(s.R + cell(row(i), quad), V[i]);
    }
    float within[2][4];
    multiply_lower(within, s.P, s.V);
    SAMESTATE_UNROLL
    for (int i = 0; i < 2; ++i) {
      SAMESTATE_UNROLL
      for (int j = 0; j < 4; ++j) O[i][j] += within[i][j];
    }
    const int value = at.column + 4 * quad;
    SAMESTATE_UNROLL
    for (int i = 0; i < 2; ++i) {
      if (row(i) >= at.tokens(m)) continue;
      float* const o = p.o + ((at.token(m) + row(i)) * p.Hv + at.head) * p.dv + value;
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
    float all[4][4][4] = {};
    const float* const keys = s.k[m % 2] + 4 * group;
    SAMESTATE_UNROLL
    for (int t = 0; t < kChunk; t += 4) {
      const Quad value = load_quad(s.R + cell(t + quarter, quad));
      SAMESTATE_UNROLL
      for (int i = 0; i < 4; ++i) {
        const Quad k = load_quad(keys + (t + quarter) * kKeyStride + 32 * i);
        SAMESTATE_UNROLL
        for (int e = 0; e < 4; ++e) {
          SAMESTATE_UNROLL
          for (int j = 0; j < 4; ++j) all[i][e][j] = fused(part(k, e), part(value, j), all[i][e][j]);
        }
      }
    }
    float U[4][4];
    share_out(all, U);
    const float over = gate(m, 4)[0];
    SAMESTATE_UNROLL
    for (int i = 0; i < 4; ++i) {
      SAMESTATE_UNROLL
      for (int j = 0; j < 4; ++j) S[i][j] = fused(S[i][j], over, U[i][j]);
    }
    write_state();
  }

  /// sums = L X, L lower triangular [64, 64].
  SAMESTATE_DEVICE void multiply_lower(float (&sums)[2][4], const float* L, const float* X) const {
    float all[4][2][4] = {};
    SAMESTATE_UNROLL
    for (int block = 0; block < 4; ++block) {
      const int l = 16 * block + 4 * quarter;
      Quad x[4];
      SAMESTATE_UNROLL
      for (int e = 0; e < 4; ++e) x[e] = load_quad(X + cell(l + e, quad));
      SAMESTATE_UNROLL
      for (int i = 2 * block; i < 8; ++i)
        add(all[i / 2][i % 2], load_quad(L + (8 * i + group) * kSquareStride + l), x);
    }
    share_out(all, sums);
  }

  /// Sums over the four lanes that share what this one keeps.
  template <int rows>
  SAMESTATE_DEVICE void share_out(const float (&all)[4][rows][4], float (&mine)[rows][4]) const {
    const bool high = quarter >= 2;
    const bool odd = quarter % 2 == 1;
    SAMESTATE_UNROLL
    for (int i = 0; i < rows; ++i) {
      SAMESTATE_UNROLL
      for (int j = 0; j < 4; ++j) {
        float half[2];
        SAMESTATE_UNROLL
        for (int e = 0; e < 2; ++e)
          half[e] = either(high, all[2 + e][i][j], all[e][i][j]) +
                    shuffle_xor(either(high, all[e][i][j], all[2 + e][i][j]), 2);
        mine[i][j] = either(odd, half[1], half[0]) + shuffle_xor(either(odd, half[0], half[1]), 1);
      }
    }
  }
  SAMESTATE_DEVICE static float either(bool first, float x, float y) { return first ? x : y; }

  /// sums += left over four terms.
  SAMESTATE_DEVICE static void add(float (&sums)[4], const Quad& left, const Quad (&right)[4]) {
    SAMESTATE_UNROLL
    for (int e = 0; e < 4; ++e) {
      SAMESTATE_UNROLL
      for (int j = 0; j < 4; ++j) sums[j] = fused(part(left, e), part(right[e], j), sums[j]);
    }
  }
  SAMESTATE_DEVICE void write_state() {
    SAMESTATE_UNROLL
    for (int i = 0; i < 4; ++i) store_quad(s.S + cell(key(i), quad), S[i]);
  }
  template <class Each>
  SAMESTATE_DEVICE void each_cell(Each&& each) {
    SAMESTATE_UNROLL
    for (int i = 0; i < 4; ++i) {
      SAMESTATE_UNROLL
      for (int j = 0; j < 4; ++j) each(key(i), 4 * quad + j, S[i][j]);
    }
  }

  const Work& c;
  const Parameters<float>& p;
  ChainShared& s;
  int quarter = lane_index() % 4, quad = 4 * (warp_index() % 2) + lane_index() / 4 % 4,
      group = 2 * (warp_index() / 2) + lane_index() / 16;
  Chain at;
  float S[4][4], V[2][4], O[2][4];
};

}  // namespace samestate::cuda::simt
