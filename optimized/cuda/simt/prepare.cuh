#pragma once

#include "optimized/cuda/simt/layout.cuh"

/// T, P and gates of one chunk for all value heads of a key head.
///
///   A = strict_lower(beta K K^T o E)   T = (I + A)^-1   P = scale Q K^T o E
namespace samestate::cuda::simt {

struct PrepareShared {
  alignas(16) float k[kChunk * kKeyStride];  ///< then A, and in its place T
  alignas(16) float q[kChunk * kKeyStride];  ///< then P, and behind it a product on its way
  alignas(16) float G[kChunk];
  float beta[kChunk], key_norm[kChunk], query_norm[kChunk];
};

template <bool delta, bool norm>
class PrepareBlock {
 public:
  SAMESTATE_DEVICE PrepareBlock(const Work& work, PrepareShared& shared) : c(work), p(work.p), s(shared) {}

  /// Block `block` of Work::prepare_blocks().
  SAMESTATE_DEVICE void run(std::int64_t block) {
    const std::int64_t slot = block / p.Hk;
    const std::int64_t key_head = block % p.Hk;
    const std::int64_t n = sequence_of(slot);
    const std::int64_t end = c.first_token(n + 1);
    const std::int64_t first = c.first_token(n) + (slot - c.first_slot(n)) * p.chunk;
    if (first >= end) return;
    tokens = static_cast<int>(end - first < p.chunk ? end - first : p.chunk);
    const std::int64_t at = (first * p.Hk + key_head) * p.dk;
    load_rows(s.k, kKeyStride, p.k + at, p.Hk * p.dk, tokens, p.dk, kChunk, kKeys, p.dk % 4 == 0);
    load_rows(s.q, kKeyStride, p.q + at, p.Hk * p.dk, tokens, p.dk, kChunk, kKeys, p.dk % 4 == 0);
    copy_wait();
    block_barrier();
    if constexpr (norm) norms();
    multiply();
    const std::int64_t heads = p.Hv / p.Hk;
    SAMESTATE_NO_UNROLL
    for (std::int64_t i = 0; i < heads; ++i) {
      const std::int64_t head = p.tiled_heads ? key_head + i * p.Hk : key_head * heads + i;
      block_barrier();  // the rows, or the head before, have been read
      if (warp_index() == 0) sum_gates(first, head);
      block_barrier();
      weigh();
      block_barrier();
      if constexpr (delta) invert();
      store(c.prepared[slot * p.Hv + head]);
    }
  }

 private:
  /// The sequence in whose slots `slot` lies.
  SAMESTATE_DEVICE std::int64_t sequence_of(std::int64_t slot) const {
    std::int64_t least = 0;
    std::int64_t beyond = p.sequences;
    while (beyond - least > 1) {
      const std::int64_t middle = (least + beyond) / 2;
      (c.first_slot(middle) <= slot ? least : beyond) = middle;
    }
    return least;
  }

  /// r = (sum x^2 + 1e-6)^-1/2 of every row (EQUATIONS 5.2).
  SAMESTATE_DEVICE void norms() {
    SAMESTATE_NO_UNROLL
    for (int i = warp_index(); i < 2 * kChunk; i += kThreads / 32) {
      const int row = i % kChunk;
      const Quad x = load_quad((i < kChunk ? s.k : s.q) + row * kKeyStride + 4 * lane_index());
      const float sum = warp_sum(fused(x.x, x.x, fused(x.y, x.y, fused(x.z, x.z, x.w * x.w))));
      if (lane_index() == 0) (i < kChunk ? s.key_norm : s.query_norm)[row] = inverse_root(sum + 1e-6F);
    }
  }

  /// K K^T and Q K^T: of every 16 x 16 block on and below the diagonal an element a thread.
  SAMESTATE_DEVICE void multiply() {
    SAMESTATE_UNROLL
    for (int e = 0; e < kBlocks; ++e) KK[e] = QK[e] = 0.0F;
    const int depth = (p.dk + 3) / 4 * 4;
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

  /// G, the cumulative sum of g by a tree, and beta, two tokens a lane.
  SAMESTATE_DEVICE void sum_gates(std::int64_t first, std::int64_t head) {
    const int lane = lane_index();
    float g[2];
    SAMESTATE_UNROLL
    for (int e = 0; e < 2; ++e) {
      const int i = 2 * lane + e;
      const std::int64_t gate = (first + i) * p.Hv + head;
      s.beta[i] = i >= tokens ? 0.0F : delta && p.beta ? p.beta[gate] : 1.0F;
      g[e] = i < tokens && p.g ? p.g[gate] : 0.0F;
      g[e] = g[e] < kHardReset ? kHardReset : g[e];
    }
    // x_i += x_{i - d}, d = 1, 2, 4, ...
    const float before = shuffle(g[1], lane > 0 ? lane - 1 : 0);
    g[1] += g[0];
    if (lane > 0) g[0] += before;
    SAMESTATE_UNROLL
    for (int d = 1; d < 32; d *= 2) {
      SAMESTATE_UNROLL
      for (float& x : g) {
        const float other = shuffle(x, lane >= d ? lane - d : lane);
        if (lane >= d) x += other;
      }
    }
    s.G[2 * lane] = g[0];
    s.G[2 * lane + 1] = g[1];
  }

  /// A and P; zero above the diagonal, which the inverse reads.
  SAMESTATE_DEVICE void weigh() {
    SAMESTATE_UNROLL
    for (int i = 0; i < 4; ++i) {
      const int row = 16 * i + at.row;
      const float left = s.beta[row] * (norm ? s.key_norm[row] : 1.0F);
      const float right = p.scale * (norm ? s.query_norm[row] : 1.0F);
      SAMESTATE_UNROLL
      for (int j = 0; j < 4; ++j) {
        const int column = 16 * j + at.column;
        float a = 0.0F;
        float x = 0.0F;
        if (j <= i) {
          // Above the diagonal an exponential may overflow: selected, not multiplied.
          const float difference = s.G[row] - s.G[column];
          const float E = row >= column ? exponential(difference) * (norm ? s.key_norm[column] : 1.0F) : 0.0F;
          if (row > column) a = KK[block(i, j)] * E * left;
          if (row >= column) x = QK[block(i, j)] * E * right;
        }
        if constexpr (delta) s.k[row * kSquareStride + column] = a;
        s.q[row * kSquareStride + column] = x;
      }
    }
  }

  /// A <- (I + A)^-1: blocks of 8 x 8 by forward substitution, a lane a column, then merges (the contract's block8).
  SAMESTATE_DEVICE void invert() {
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
    merge<8>();
    merge<16>();
    merge<32>();
  }

  /// T21 = -(T22 A21) T11 of every pair of diagonal blocks of n x n.
  template <int n>
  SAMESTATE_DEVICE void merge() {
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

  SAMESTATE_DEVICE void store(Prepared& to) const {
    SAMESTATE_NO_UNROLL
    for (int i = thread_index(); i < kChunk * kChunk / 4; i += kThreads) {
      const int row = i / (kChunk / 4);
      const int column = i % (kChunk / 4) * 4;
      const auto copy = [&](float* matrix, const float* from) {
        const Quad x = load_quad(from + row * kSquareStride + column);
        store_quad(matrix + 4 * i, {x.x, x.y, x.z, x.w});
      };
      if constexpr (delta) copy(to.T, s.k);
      copy(to.P, s.q);
    }
    if (thread_index() < kChunk) {
      const int i = thread_index();
      const float r = norm ? s.key_norm[i] : 1.0F;
      const float from_start = exponential(s.G[i]);
      // Of the last token: past it the tree sums the same numbers in another order.
      const float whole = s.G[tokens - 1];
      to.beta[i] = s.beta[i];
      to.beta_start[i] = s.beta[i] * from_start * r;
      to.to_end[i] = exponential(whole - s.G[i]) * r;
      to.out_start[i] = p.scale * from_start * (norm ? s.query_norm[i] : 1.0F);
      if (i < 4) to.over[i] = exponential(whole);
    }
  }

  static constexpr int kBlocks = 10;
  SAMESTATE_DEVICE static constexpr int block(int i, int j) { return i * (i + 1) / 2 + j; }

  const Work& c;
  const Parameters<float>& p;
  PrepareShared& s;
  Place at{16};
  int tokens = 0;
  float KK[kBlocks], QK[kBlocks];
};

}  // namespace samestate::cuda::simt
