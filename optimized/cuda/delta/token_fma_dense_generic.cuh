#pragma once

#include <cstdint>

#include "optimized/cuda/delta/dense_parameters.cuh"

/// The recurrent form (EQUATIONS 5.5) of all four systems; decoding is the same with T = 1:
///
///   S <- e^g S;  u = beta (v - S^T k);  S <- S + k u^T;  o = scale S^T q
///
/// and without the delta rule u = v.
///
/// A block handles 32 value columns of one head, a column a lane; each warp keeps its rows of the state in
/// registers, and partial sums of S^T k and S^T q meet in shared memory. fp32 throughout; only o (and
/// normalised q, k where the contract says so) is rounded to Operand.
namespace samestate::cuda {

inline constexpr int kStage = 8;  ///< tokens whose inputs are in shared memory at once

/// Shared memory of one block, in fp32 words, for `warps` warps of `rows` state rows.
inline constexpr int recurrent_words(int warps, int rows) {
  return kStage * (2 * warps * rows + 32 + 2 + 32 * warps) + 2 * 32 * warps;
}

/// One item by one block: rows a multiple of 4, rows * warps >= dk, p.tile = 32. The next item may follow at
/// once.
template <class Operand, int rows, bool delta>
SAMESTATE_DEVICE void recurrent_block(const Parameters<Operand>& p, std::int64_t index, float* shared) {
  const int warps = block_warps();
  const int keys = warps * rows;
  float* const K = shared;                             // [kStage, keys], zero beyond dk
  float* const Q = K + kStage * keys;                  // [kStage, keys], zero beyond dk
  float* const V = Q + kStage * keys;                  // [kStage, 32]
  float* const alpha = V + kStage * 32;                // [kStage]
  float* const beta = alpha + kStage;                  // [kStage]
  float* const read_q = beta + kStage;                 // [kStage, warps, 32] partial S^T q
  float* const read_k = read_q + kStage * warps * 32;  // [2, warps, 32] partial S^T k, tokens in turn

  const Item x = item_of(p, index);
  const int column = lane_index();
  const int first_row = warp_index() * rows;
  const bool inside = column < x.columns;

  float S[rows];
  SAMESTATE_UNROLL
  for (int r = 0; r < rows; ++r) {
    const std::int64_t row = first_row + r;
    S[r] = inside && row < p.dk && p.initial_state ? p.initial_state[x.state + row * p.dv + column] : 0.0F;
  }

  for (std::int64_t t = 0; t < x.tokens; t += kStage) {
    const int tokens = static_cast<int>(x.tokens - t < kStage ? x.tokens - t : kStage);
    const std::int64_t first = x.first_token + t;
    for (int i = thread_index(); i < tokens * keys; i += block_threads()) {
      const std::int64_t token = first + i / keys;
      const int row = i % keys;
      const std::int64_t source = (token * p.Hk + x.key_head) * p.dk + row;
      K[i] = row < p.dk ? widen(p.k[source]) : 0.0F;
      Q[i] = row < p.dk ? widen(p.q[source]) : 0.0F;
    }
    for (int i = thread_index(); i < tokens * 32; i += block_threads()) {
      const std::int64_t row = (first + i / 32) * p.Hv + x.head;
      V[i] = i % 32 < x.columns ? widen(p.v[row * p.dv + x.column + i % 32]) : 0.0F;
    }
    for (int i = thread_index(); i < tokens; i += block_threads()) {
      const std::int64_t gate = (first + i) * p.Hv + x.head;
      alpha[i] = p.g ? decay<Operand>(p.g[gate]) : 1.0F;
      beta[i] = p.beta ? p.beta[gate] : 1.0F;
    }
    block_barrier();
    if (p.l2norm) {
      for (int i = warp_index(); i < 2 * tokens; i += warps) {
        normalize_row<Operand>(i < tokens ? K + i * keys : Q + (i - tokens) * keys, p.dk, p.round_qk);
      }
      block_barrier();
    }

    for (int i = 0; i < tokens; ++i) {
      const float* k = K + i * keys + first_row;
      const float* q = Q + i * keys + first_row;
      SAMESTATE_UNROLL
      for (int r = 0; r < rows; ++r) S[r] *= alpha[i];
      float u = V[i * 32 + column];
      if constexpr (delta) {
        float sum = 0.0F;
        SAMESTATE_UNROLL
        for (int r = 0; r < rows; r += 4) {
          const Quad part = load_quad(k + r);
          sum = fused(S[r], part.x, sum);
          sum = fused(S[r + 1], part.y, sum);
          sum = fused(S[r + 2], part.z, sum);
          sum = fused(S[r + 3], part.w, sum);
        }
        // Two halves in turn: a warp writes one again only after the next token's barrier, and by then all
        // have read it.
        float* const part = read_k + i % 2 * warps * 32;
        part[warp_index() * 32 + column] = sum;
        block_barrier();
        float stored = 0.0F;
        for (int w = 0; w < warps; ++w) stored += part[w * 32 + column];
        u = beta[i] * (u - stored);
      }
      float sum = 0.0F;
      SAMESTATE_UNROLL
      for (int r = 0; r < rows; r += 4) {
        const Quad key = load_quad(k + r);
        const Quad query = load_quad(q + r);
        S[r] = fused(key.x, u, S[r]);
        S[r + 1] = fused(key.y, u, S[r + 1]);
        S[r + 2] = fused(key.z, u, S[r + 2]);
        S[r + 3] = fused(key.w, u, S[r + 3]);
        sum = fused(S[r], query.x, sum);
        sum = fused(S[r + 1], query.y, sum);
        sum = fused(S[r + 2], query.z, sum);
        sum = fused(S[r + 3], query.w, sum);
      }
      read_q[(i * warps + warp_index()) * 32 + column] = sum;
    }
    block_barrier();

    for (int i = thread_index(); i < tokens * 32; i += block_threads()) {
      const int c = i % 32;
      if (c >= x.columns) continue;
      float sum = 0.0F;
      for (int w = 0; w < warps; ++w) sum += read_q[(i / 32 * warps + w) * 32 + c];
      p.o[((first + i / 32) * p.Hv + x.head) * p.dv + x.column + c] = narrow<Operand>(sum * p.scale);
    }
  }

  if (p.final_state && inside) {
    SAMESTATE_UNROLL
    for (int r = 0; r < rows; ++r) {
      const std::int64_t row = first_row + r;
      if (row < p.dk) p.final_state[x.state + row * p.dv + column] = S[r];
    }
  }
}

}  // namespace samestate::cuda
