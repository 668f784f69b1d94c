#pragma once

#include "optimized/cuda/delta/chunk_fma_dense/layout.cuh"

/// T, P and gates of one chunk for all value heads of a key head.
///
///   A = strict_lower(beta K K^T o E)   T = (I + A)^-1   P = scale Q K^T o E
namespace samestate::cuda::simt {

struct PrepareShared {
  alignas(16) float k[kChunk * kKeyStride];  ///< then A, and in its place T
  alignas(16) float q[kChunk * kKeyStride];  ///< then P, and after it a product in progress
  alignas(16) float G[kChunk];
  float beta[kChunk], key_norm[kChunk], query_norm[kChunk];
};

/// `Products`: FmaProducts or tf32::TensorProducts, which make A, P and the inverse in PrepareShared.
template <template <bool delta, bool norm> class Products, bool delta, bool norm>
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
    products.multiply(s, p.dk);
    const std::int64_t heads = p.Hv / p.Hk;
    SAMESTATE_NO_UNROLL
    for (std::int64_t i = 0; i < heads; ++i) {
      const std::int64_t head = p.tiled_heads ? key_head + i * p.Hk : key_head * heads + i;
      block_barrier();  // the rows, or the head before, have been read
      if (warp_index() == 0) sum_gates(first, head);
      block_barrier();
      products.weigh(s, p.scale);
      block_barrier();
      if constexpr (delta) products.invert(s);
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

  SAMESTATE_DEVICE void store(Prepared& to) const {
    SAMESTATE_NO_UNROLL
    for (int i = thread_index(); i < kChunk * kChunk / 4; i += kThreads) {
      const int row = i / (kChunk / 4);
      const int column = i % (kChunk / 4) * 4;
      if (!below_diagonal(row, column)) continue;
      const auto copy = [&](float* matrix, const float* from) {
        const Quad x = load_quad(from + row * kSquareStride + column);
        const auto stored = [](float y) { return Products<delta, norm>::stored(y); };
        store_quad(matrix + 4 * i, {stored(x.x), stored(x.y), stored(x.z), stored(x.w)});
      };
      if constexpr (delta) copy(to.T, s.k);
      copy(to.P, s.q);
    }
    if (thread_index() < kChunk) {
      const int i = thread_index();
      const float r = norm ? s.key_norm[i] : 1.0F;
      const float from_start = Products<delta, norm>::decay(s.G[i]);
      // The sum at the last token: past it the tree sums the same numbers in another order.
      const float whole = s.G[tokens - 1];
      to.beta[i] = s.beta[i];
      to.beta_start[i] = s.beta[i] * from_start * r;
      to.to_end[i] = Products<delta, norm>::decay(whole - s.G[i]) * r;
      to.out_start[i] = p.scale * from_start * (norm ? s.query_norm[i] : 1.0F);
      if (i < 4) to.over[i] = Products<delta, norm>::decay(whole);
    }
  }

  const Work& c;
  const Parameters<float>& p;
  PrepareShared& s;
  Products<delta, norm> products;
  int tokens = 0;
};

}  // namespace samestate::cuda::simt
