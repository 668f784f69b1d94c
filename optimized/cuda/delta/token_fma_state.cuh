#pragma once

#include <cstddef>
#include <cstdint>

#include "optimized/cuda/pointwise/pointwise.cuh"

/// A head's state of the gated delta rule in the registers of a block, and a token of it (EQUATIONS 5.6):
///
///   u = beta (v - alpha S^T k);  o = scale (alpha S^T q + u (k . q));  S <- alpha S + k u^T
///
/// The state is read once, both sums from the one pass, and written from the registers that it came to.
namespace samestate::cuda {

/// Four adjacent elements of a row, zeros where fewer than four `exist`. `vector`: all of them do or none.
template <bool vector>
SAMESTATE_DEVICE Vector<float, 4> load_four(const float* from, int exist) {
  if constexpr (vector) {
    return load_settled<false>(reinterpret_cast<const Vector<float, 4>*>(from), exist > 0);
  } else {
    float x[4];
    SAMESTATE_UNROLL
    for (int c = 0; c < 4; ++c) x[c] = c < exist ? from[c] : 0.0F;
    return narrowed<float>(x);
  }
}
template <bool vector, class Element>
SAMESTATE_DEVICE void store_four(Element* to, int exist, const float (&x)[4]) {
  if constexpr (vector) {
    if (exist > 0) *reinterpret_cast<Vector<Element, 4>*>(to) = narrowed<Element>(x);
  } else {
    SAMESTATE_UNROLL
    for (int c = 0; c < 4; ++c) {
      if (c < exist) to[c] = narrow<Element>(x[c]);
    }
  }
}

/// alpha = e^g and beta of a head, from the output of a projection (GDN-29, GDN-30).
struct DeltaGates {
  float alpha, beta;
};
template <class Operand>
SAMESTATE_DEVICE DeltaGates delta_gates(Operand a, Operand b, float A_log, float dt_bias) {
  const float rate = exponential(A_log);
  return {exponential(-rate * softplus(widen(a) + dt_bias)), logistic(widen(b))};
}

/// A head of a sequence, or part of its columns, by number of the block.
struct DeltaPlace {
  std::int64_t b, head;  ///< the sequence; the head among all sequences'
  int h, column;         ///< the head, and the first of its columns
};
SAMESTATE_DEVICE DeltaPlace delta_place(std::int64_t item, int tiles, int heads, int columns) {
  DeltaPlace at;
  at.head = quotient(item, tiles);
  at.column = static_cast<int>(item - at.head * tiles) * columns;
  at.b = quotient(at.head, heads);
  at.h = static_cast<int>(at.head - at.b * heads);
  return at;
}

/// `columns` columns of a head's state [dk, dv] by 256 threads: neighbours have four adjacent columns each, and a thread every
/// kGroups-th row, `rows` of them. `vector`: dv is a multiple of four.
template <int columns, int rows, bool vector>
struct DeltaState {
  static constexpr int kThreads = 256, kWarps = kThreads / 32;
  static constexpr int kLanes = columns / 4;  ///< threads of a row
  static constexpr int kGroups = kThreads / kLanes;
  static constexpr int kWidth = kGroups * rows;  ///< dk at most
  static_assert(kLanes == 8 || kLanes == 16 || kLanes == 32);

  /// In shared memory, what all threads read of a token.
  struct Token {
    alignas(16) float v[columns];
    float q[kWidth];  ///< not yet normalised, and k
    float k[kWidth];
    DeltaGates gates;
  };
  /// In shared memory, S^T q and S^T k of each warp's rows.
  struct Sums {
    alignas(16) float of_warp[kWarps][2][columns];
  };

  /// Zeros beyond the head, of which `values` columns are the block's.
  static SAMESTATE_DEVICE void clear_beyond(Token& token, int dk, int values) {
    for (int i = dk + thread_index(); i < kWidth; i += kThreads) token.q[i] = token.k[i] = 0.0F;
    for (int c = values + thread_index(); c < columns; c += kThreads) token.v[c] = 0.0F;
  }

  /// This thread's first of four columns, among the block's, and the first of its rows.
  static SAMESTATE_DEVICE int column() { return thread_index() % kLanes * 4; }
  static SAMESTATE_DEVICE int row() { return thread_index() / kLanes; }

  /// Loads a head's state from `head`, with zeros beyond it; `exist` counts the columns from this thread's
  /// first on.
  SAMESTATE_DEVICE void load(const float* head, int dk, int dv, int exist) {
    const float* const from = head + row() * dv;
    const int stride = kGroups * dv;
    SAMESTATE_UNROLL
    for (int r = 0; r < rows; ++r)
      S[r] = load_four<vector>(from + r * stride, row() + r * kGroups < dk ? exist : 0);
  }
  SAMESTATE_DEVICE void store(float* head, int dk, int dv, int exist) const {
    float* const to = head + row() * dv;
    const int stride =
        recomputed(kGroups * dv);  // else every row's offset stays in registers from its load on
    SAMESTATE_UNROLL
    for (int r = 0; r < rows; ++r) {
      if constexpr (vector) {
        if (row() + r * kGroups < dk && exist > 0)
          *reinterpret_cast<Vector<float, 4>*>(to + r * stride) = S[r];
      } else {
        float x[4];
        SAMESTATE_UNROLL
        for (int c = 0; c < 4; ++c) x[c] = element(S[r], c);
        store_four<vector>(to + r * stride, row() + r * kGroups < dk ? exist : 0, x);
      }
    }
  }

  /// Passes the token after a barrier: gives `o` of this thread's columns, the same in every row's threads,
  /// and the state after it. With `normalises`, q and k are x (sum x^2 + 1e-6)^-1/2, applied as factors of
  /// their sums.
  SAMESTATE_DEVICE void pass(const Token& token, Sums& sums, bool normalises, float scale, float (&o)[4]) {
    float kq = 0.0F, kk = 0.0F, qq = 0.0F;
    for (int i = lane_index(); i < kWidth; i += 32) {
      const float k = token.k[i], q = token.q[i];
      kq = fused(k, q, kq), kk = fused(k, k, kk), qq = fused(q, q, qq);
    }
    kq = warp_sum(kq);
    const float of_k = normalises ? inverse_root(warp_sum(kk) + 1e-6F) : 1.0F;
    const float of_q = normalises ? inverse_root(warp_sum(qq) + 1e-6F) : 1.0F;
    float read[2][4] = {};  // S^T q, S^T k
    read_both(token, sums, read);
    const float alpha = token.gates.alpha, beta = token.gates.beta;
    float u[4];
    SAMESTATE_UNROLL
    for (int c = 0; c < 4; ++c) {
      u[c] = beta * (token.v[column() + c] - alpha * (of_k * read[1][c]));
      o[c] = scale * fused(u[c], kq * of_k * of_q, alpha * (of_q * read[0][c]));
      u[c] *= of_k;
    }
    SAMESTATE_UNROLL
    for (int r = 0; r < rows; ++r) {
      const float k = token.k[row() + r * kGroups];
      float x[4];
      SAMESTATE_UNROLL
      for (int c = 0; c < 4; ++c) x[c] = fused(k, u[c], alpha * element(S[r], c));
      S[r] = narrowed<float>(x);
    }
  }

 private:
  /// S^T q and S^T k over all rows: this thread's, its warp's by a shuffle, all warps' through shared memory.
  SAMESTATE_DEVICE void read_both(const Token& token, Sums& sums, float (&read)[2][4]) const {
    SAMESTATE_UNROLL
    for (int r = 0; r < rows; ++r) {
      const float q = token.q[row() + r * kGroups], k = token.k[row() + r * kGroups];
      SAMESTATE_UNROLL
      for (int c = 0; c < 4; ++c) {
        read[0][c] = fused(q, element(S[r], c), read[0][c]);
        read[1][c] = fused(k, element(S[r], c), read[1][c]);
      }
    }
    SAMESTATE_UNROLL
    for (int i = 0; i < 2; ++i) {
      SAMESTATE_UNROLL
      for (int c = 0; c < 4; ++c) {
        SAMESTATE_UNROLL
        for (int mask = kLanes; mask < 32; mask *= 2) read[i][c] += shuffle_xor(read[i][c], mask);
      }
      if (lane_index() < kLanes)
        *reinterpret_cast<Vector<float, 4>*>(sums.of_warp[warp_index()][i] + column()) =
            narrowed<float>(read[i]);
      SAMESTATE_UNROLL
      for (int c = 0; c < 4; ++c) read[i][c] = 0.0F;
    }
    block_barrier();
    SAMESTATE_UNROLL
    for (int w = 0; w < kWarps; ++w) {
      SAMESTATE_UNROLL
      for (int i = 0; i < 2; ++i) {
        const Quad part = load_quad(sums.of_warp[w][i] + column());
        read[i][0] += part.x, read[i][1] += part.y, read[i][2] += part.z, read[i][3] += part.w;
      }
    }
  }

  Vector<float, 4> S[rows];
};

/// Columns of a head that one block has.
inline int delta_columns(int dk, int dv) { return dk <= 128 && dv > 64 && dv % 4 == 0 ? 128 : 64; }
SAMESTATE_HOST_DEVICE inline int delta_tiles(int dv, int columns) { return (dv + columns - 1) / columns; }

/// `work<columns, rows, vector>()` with the state that fits heads of dk, at most 256, by dv.
template <class Work>
void with_delta_state(int dk, int dv, Work&& work) {
  if (dv % 4 != 0) return work.template operator()<64, 16, false>();
  if (delta_columns(dk, dv) == 128) return work.template operator()<128, 16, true>();
  if (dk <= 64) return work.template operator()<64, 4, true>();
  work.template operator()<64, 16, true>();
}

/// Does the same for `heads` heads of all sequences: if there are few, each is divided among as many blocks
/// as the device runs at once.
template <class Work>
void with_delta_state(int dk, int dv, std::int64_t heads, Work&& work) {
  constexpr std::int64_t kAtOnce = 264;  // of an H100, whatever the device: the order of sums follows
  if (dk <= 128 && dv % 4 == 0 && dv > 32) {
    if (heads * delta_tiles(dv, 32) <= kAtOnce) return work.template operator()<32, 4, true>();
    if (dk > 64 && dv > 64 && heads * delta_tiles(dv, 64) <= kAtOnce)
      return work.template operator()<64, 8, true>();
  }
  with_delta_state(dk, dv, work);
}

}  // namespace samestate::cuda
