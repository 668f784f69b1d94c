#pragma once

#include "optimized/cuda/delta/chunk_fma_dense/transport.cuh"
#include "optimized/cuda/delta/chunk_mma_dense/fragments.cuh"
#include "optimized/cuda/units/hopper.cuh"

/// 32 value columns of S through the chunks of one sequence, by tensor cores in tf32.
///
///   R = beta V - beta e^G (K S)   V' = T R   O = scale e^G (Q S) + P V'   S <- e^{G_C} S + K^T (e^{G_C - G} V')
namespace samestate::cuda::mma {

using simt::kChunk;
using simt::kColumns;
using simt::kKeys;
using simt::kKeyStride;
using simt::kSquareStride;
using simt::kValueStride;

inline constexpr int kCarriers = 256;  ///< threads that carry S
inline constexpr int kReaders = 128;   ///< threads that make O, and fetch

/// T or P without what lies above its 16 x 16 blocks on the diagonal. Rows of 20, 36, 52 and 68 floats: eight rows of one
/// column meet eight different banks.
struct Triangle {
  static constexpr int kFloats = 16 * (20 + 36 + 52 + 68);
  float x[kFloats];

  SAMESTATE_DEVICE static int stride(int row) { return row / 16 * 16 + 20; }
  SAMESTATE_DEVICE static int offset(int row) {
    const int tile = row / 16;
    return tile * (128 * tile + 192) + row % 16 * stride(row);
  }
};

/// Fetches the triangle of chunk m; it has arrived after the wait for the copies and a barrier.
SAMESTATE_DEVICE void fetch_triangle(const simt::Chain& at, const simt::Team& team, Triangle& to,
                                     float (simt::Prepared::*matrix)[kChunk * kChunk], int m) {
  const float* const from = at.prepared(m).*matrix;
  SAMESTATE_UNROLL
  for (int i = 0; i < kChunk * kChunk / 4 / team.size; ++i) {
    const int e = i * team.size + team.index;
    const int row = e / (kChunk / 4);
    const int column = e % (kChunk / 4) * 4;
    if (simt::below_diagonal(row, column)) copy_async_16(to.x + Triangle::offset(row) + column, from + 4 * e);
  }
}

struct ChainShared {
  alignas(16) float k[2][kChunk * kKeyStride];
  alignas(16) float q[kChunk * kKeyStride];
  alignas(16) float v[2][kChunk * kValueStride];
  alignas(16) Triangle T[2];
  alignas(16) Triangle P;
  // Operands, numbers of tf32, transposed: a row is a value column.
  alignas(16) float S[2][kColumns * kKeyStride];
  alignas(16) float R[kColumns * kSquareStride];
  alignas(16) float V[2][kColumns * kSquareStride];     ///< V'
  alignas(16) float decayed[kColumns * kSquareStride];  ///< e^{G_C - G} V', tokens as in update()
  alignas(16) float gates[2][simt::Prepared::kGates];
  alignas(16) Barrier everyone;
};
static_assert(sizeof(ChainShared) <= 227 * 1024,
              "a block of compute capability 9.0 has 227 KiB of shared memory");

/// Eight warps carry S, 16 keys each; four make O, one chunk behind in P V', and fetch. They meet once per
/// chunk.
template <bool delta>
class ChainBlock {
 public:
  static constexpr int kThreads = kCarriers + kReaders;

  SAMESTATE_DEVICE ChainBlock(const simt::Work& work, ChainShared& shared) : c(work), p(work.p), s(shared) {}

  /// Block `block` of Work::chain_blocks().
  SAMESTATE_DEVICE void run(std::int64_t block) {
    at = simt::Chain(c, block);
    if (thread_index() == 0) s.everyone.init(kThreads / 32);
    barriers_ready();
    block_barrier();
    thread_index() < kCarriers ? carry() : read();
  }

 private:
  SAMESTATE_DEVICE static int first_row() { return 16 * (warp_index() % 4); }
  SAMESTATE_DEVICE static int first_key() { return 16 * warp_index(); }
  SAMESTATE_DEVICE static int first_column() { return 16 * (warp_index() / 4); }
  SAMESTATE_DEVICE static simt::Team readers() { return {thread_index() - kCarriers, kReaders}; }
  SAMESTATE_DEVICE static void carriers_meet() { named_barrier(1, kCarriers); }
  SAMESTATE_DEVICE static void readers_meet() { named_barrier(2, kReaders); }
  /// This is neither block_barrier() nor a named barrier of all threads: in code of one role synccheck
  /// reports either as divergent.
  SAMESTATE_DEVICE void everyone_meets() {
    s.everyone.arrive_warp();
    s.everyone.wait(meetings++);
  }
  /// beta, beta_start, to_end or out_start of chunk m.
  SAMESTATE_DEVICE const float* gate(int m, int which) const { return s.gates[m % 2] + which * kChunk; }

  SAMESTATE_DEVICE void carry() {
    each_cell([&](int key, int value, float& x) {
      const bool exists = p.initial_state && key < p.dk && at.column + value < p.dv;
      x = exists ? p.initial_state[at.state + static_cast<std::int64_t>(key) * p.dv + value] : 0.0F;
    });
    write_state(0);
    SAMESTATE_NO_UNROLL
    for (int m = 0; m < at.chunks; ++m) {
      everyone_meets();  // S, K, V, T and the gates of chunk m are there
      if constexpr (delta) residual(m);
      carriers_meet();  // R is there
      new_values(m);
      carriers_meet();  // V' is there, R has been read
      update(m);
    }
    everyone_meets();
    if (!p.final_state) return;
    each_cell([&](int key, int value, float& x) {
      if (key < p.dk && at.column + value < p.dv)
        p.final_state[at.state + static_cast<std::int64_t>(key) * p.dv + value] = x;
    });
  }

  SAMESTATE_DEVICE void read() {
    if (at.chunks > 0) {
      fetch_keys(at, readers(), s.q, p.q, 0);
      fetch(0);
    }
    copies_commit();
    copies_commit();
    float O[4][4];
    SAMESTATE_NO_UNROLL
    for (int m = 0; m < at.chunks; ++m) {
      const bool more = m + 1 < at.chunks;
      copies_wait<1>();  // all but P of the chunk before
      everyone_meets();  // chunk m and its S are there, V' of the chunk before
      if (more) fetch(m + 1);
      copies_commit();
      float next[4][4];
      read_state(next, m);
      copies_wait<1>();
      readers_meet();  // P of the chunk before is there, Q has been read
      if (more) fetch_keys(at, readers(), s.q, p.q, m + 1);
      copies_commit();
      if (m > 0) attend(O, m - 1);
      readers_meet();  // P has been read
      fetch_triangle(at, readers(), s.P, &simt::Prepared::P, m);
      copies_commit();
      SAMESTATE_UNROLL
      for (int e = 0; e < 16; ++e) O[e / 4][e % 4] = next[e / 4][e % 4];
    }
    copy_wait();
    everyone_meets();
    if (at.chunks > 0) attend(O, at.chunks - 1);
  }

  /// Fetches what the carriers read of chunk m.
  SAMESTATE_DEVICE void fetch(int m) {
    fetch_keys(at, readers(), s.k[m % 2], p.k, m);
    fetch_values(at, readers(), s.v[m % 2], m);
    fetch_gates(at, readers(), s.gates[m % 2], m);
    if constexpr (delta) fetch_triangle(at, readers(), s.T[m % 2], &simt::Prepared::T, m);
  }

  /// R = beta V - beta e^G (K S): 16 rows and 16 columns a warp.
  SAMESTATE_DEVICE void residual(int m) {
    const float* const rows = s.k[m % 2] + left_offset(kKeyStride, first_row(), 0);
    const float* const state = s.S[m % 2] + right_offset(kKeyStride, first_column(), 0);
    float X[2][4];
    clear(X);
    SAMESTATE_NO_UNROLL
    for (int first = 0; first < p.dk; first += 64) {  // beyond dk both are zero
      SAMESTATE_UNROLL
      for (int l = first; l < first + 64; l += 8) {
        std::uint32_t x[4], y[4];
        load_matrices(x, rows + l);
        load_matrices(y, state + l);
        round(x);
        multiply_two(X[0], X[1], x, y);
      }
    }
    SAMESTATE_UNROLL
    for (int i = 0; i < 2; ++i) {
      const int row = first_row() + here.r + 8 * i;
      const float beta = gate(m, 0)[row];
      const float beta_start = gate(m, 1)[row];
      SAMESTATE_UNROLL
      for (int j = 0; j < 2; ++j) {
        const int column = first_column() + 8 * j + here.c;
        const Pair v = load_pair(s.v[m % 2] + row * kValueStride + column);
        float* const to = s.R + column * kSquareStride + row;
        to[0] = rounded(fused(-beta_start, X[j][2 * i], beta * v.x));
        to[kSquareStride] = rounded(fused(-beta_start, X[j][2 * i + 1], beta * v.y));
      }
    }
  }

  /// V' = T R, without the delta rule V: 16 rows and 16 columns a warp.
  SAMESTATE_DEVICE void new_values(int m) {
    float V[2][4];
    if constexpr (delta) {
      clear(V);
      std::uint32_t x[8][4], y[8][4];
      const float* const left = left_of(s.T[m % 2]);
      const float* const right = s.R + right_offset(kSquareStride, first_column(), 0);
      each_step([&](int n) {
        load_matrices(x[n], left + 8 * n);
        load_matrices(y[n], right + 8 * n);
      });
      each_step([&](int n) { multiply_two(V[0], V[1], x[n], y[n]); });
    }
    SAMESTATE_UNROLL
    for (int i = 0; i < 2; ++i) {
      const int row = first_row() + here.r + 8 * i;
      const float to_end = gate(m, 2)[row];
      SAMESTATE_UNROLL
      for (int e = 0; e < 4; ++e) {
        const int column = first_column() + e / 2 * 8 + here.c + e % 2;
        const float v = delta ? V[e / 2][2 * i + e % 2] : s.v[m % 2][row * kValueStride + column];
        s.V[m % 2][column * kSquareStride + row] = rounded(v);
        s.decayed[column * kSquareStride + row - here.r + here.r % 2 * 4 + here.r / 2] = rounded(v * to_end);
      }
    }
  }

  /// O = scale e^G (Q S): 16 rows a warp, as in attend().
  SAMESTATE_DEVICE void read_state(float (&O)[4][4], int m) {
    const float* const rows = s.q + left_offset(kKeyStride, first_row(), 0);
    const float* const state = s.S[m % 2] + right_offset(kKeyStride, 0, 0);
    clear(O);
    SAMESTATE_NO_UNROLL
    for (int first = 0; first < p.dk; first += 64) {  // beyond dk both are zero
      SAMESTATE_UNROLL
      for (int l = first; l < first + 64; l += 8) {
        std::uint32_t x[4], low[4], high[4];
        load_matrices(x, rows + l);
        load_matrices(low, state + l);
        load_matrices(high, state + 16 * kKeyStride + l);
        round(x);
        multiply_two(O[0], O[1], x, low);
        multiply_two(O[2], O[3], x, high);
      }
    }
    SAMESTATE_UNROLL
    for (int i = 0; i < 2; ++i) {
      const float out_start = gate(m, 3)[first_row() + here.r + 8 * i];
      SAMESTATE_UNROLL
      for (int j = 0; j < 4; ++j) O[j][2 * i] *= out_start, O[j][2 * i + 1] *= out_start;
    }
  }

  /// O += P V', to memory.
  SAMESTATE_DEVICE void attend(float (&O)[4][4], int m) {
    const float* const left = left_of(s.P);
    const float* const right = s.V[m % 2] + right_offset(kSquareStride, 0, 0);
    each_step([&](int n) {
      std::uint32_t x[4], low[4], high[4];
      load_matrices(x, left + 8 * n);
      load_matrices(low, right + 8 * n);
      load_matrices(high, right + 16 * kSquareStride + 8 * n);
      multiply_two(O[0], O[1], x, low);
      multiply_two(O[2], O[3], x, high);
    });
    SAMESTATE_UNROLL
    for (int i = 0; i < 2; ++i) {
      const int row = first_row() + here.r + 8 * i;
      if (row >= at.tokens(m)) continue;
      float* const o = p.o + ((at.token(m) + row) * p.Hv + at.head) * p.dv + at.column;
      SAMESTATE_UNROLL
      for (int j = 0; j < 4; ++j) {
        const int value = 8 * j + here.c;
        if (p.dv % 2 == 0 && at.column + value < p.dv) {
          store_pair(o + value, O[j][2 * i], O[j][2 * i + 1]);
        } else {
          SAMESTATE_UNROLL
          for (int e = 0; e < 2; ++e)
            if (at.column + value + e < p.dv) o[value + e] = O[j][2 * i + e];
        }
      }
    }
  }

  /// S <- e^{G_C} S + K^T (e^{G_C - G} V'). Of eight tokens the lanes of a left operand read 0, 2, 4, 6 and 1, 3, 5, 7:
  /// banks that do not meet.
  SAMESTATE_DEVICE void update(int m) {
    const float over = gate(m, 4)[0];
    SAMESTATE_UNROLL
    for (int e = 0; e < 16; ++e) S[e / 4][e % 4] *= over;
    const float* const keys = s.k[m % 2] + here.c * kKeyStride + first_key() + here.r;
    const float* const values = s.decayed + right_offset(kSquareStride, 0, 0);
    SAMESTATE_UNROLL
    for (int t = 0; t < kChunk; t += 8) {
      std::uint32_t x[4], low[4], high[4];
      SAMESTATE_UNROLL
      for (int e = 0; e < 4; ++e) x[e] = tf32_even(keys[(t + e / 2) * kKeyStride + e % 2 * 8]);
      load_matrices(low, values + t);
      load_matrices(high, values + 16 * kSquareStride + t);
      multiply_two(S[0], S[1], x, low);
      multiply_two(S[2], S[3], x, high);
    }
    write_state(m + 1);
  }

  SAMESTATE_DEVICE static const float* left_of(const Triangle& matrix) {
    return matrix.x + Triangle::offset(first_row()) + left_offset(Triangle::stride(first_row()), 0, 0);
  }

  /// Calls step(first) for the depth of a product with this warp's rows of a lower triangular matrix, eight
  /// at a time.
  template <class Step>
  SAMESTATE_DEVICE static void each_step(Step&& step) {
    SAMESTATE_UNROLL
    for (int n = 0; n < 8; ++n)
      if (8 * n < first_row() + 16) step(n);
  }

  template <std::size_t n>
  SAMESTATE_DEVICE static void clear(float (&x)[n][4]) {
    SAMESTATE_UNROLL
    for (auto& part : x) part[0] = part[1] = part[2] = part[3] = 0.0F;
  }
  /// For chunk m.
  SAMESTATE_DEVICE void write_state(int m) {
    each_cell([&](int key, int value, float& x) { s.S[m % 2][value * kKeyStride + key] = rounded(x); });
  }
  template <class Each>
  SAMESTATE_DEVICE void each_cell(Each&& each) {
    SAMESTATE_UNROLL
    for (int j = 0; j < 4; ++j) {
      SAMESTATE_UNROLL
      for (int e = 0; e < 4; ++e) each(first_key() + here.r + e / 2 * 8, 8 * j + here.c + e % 2, S[j][e]);
    }
  }

  const simt::Work& c;
  const Parameters<float>& p;
  ChainShared& s;
  Cell here;
  int meetings = 0;
  simt::Chain at;
  float S[4][4];
};

}  // namespace samestate::cuda::mma
