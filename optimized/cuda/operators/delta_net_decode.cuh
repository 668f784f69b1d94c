#pragma once

#include <cstdint>

#include "optimized/cuda/operators/delta_net.cuh"
#include "optimized/cuda/operators/norms.cuh"
#include "optimized/cuda/operators/pointwise.cuh"

/// One token of the Gated DeltaNet layer between its projections (EQUATIONS 5.6), in one launch: the convolution and what it
/// carries on, gates, lengths of q and k, the rule and, where one block has all columns of a head, the gated norm.
///
///   u = beta (v - alpha S^T k);  o = scale (alpha S^T q + u (k . q));  S <- alpha S + k u^T
///
/// The state is read once, both sums from the one pass, and written from the registers that it came to. Everything before the
/// sums is computed while it is on its way.
namespace samestate::cuda {

template <class Operand>
struct DeltaDecodeParameters {
  DeltaNetShape shape;  ///< of one token
  int W = 1;
  const Operand* qkvz =
      nullptr;  ///< [B, key heads, group()], a head's q, k, then v and z of those it serves; pads are any
  const Operand* b = nullptr;  ///< [B, heads], and a: before the gates
  const Operand* a = nullptr;
  const float* mask = nullptr;      ///< [B], 0: a pad
  const Operand* kernel = nullptr;  ///< [channels, W]
  const Operand* past = nullptr;    ///< [B, W - 1, channels]
  Operand* carried = nullptr;       ///< the same
  const float* A_log = nullptr;     ///< [heads], and dt_bias
  const float* dt_bias = nullptr;
  const float* norm = nullptr;     ///< [dv]
  const float* initial = nullptr;  ///< [B, heads, dk, dv]
  float* final = nullptr;          ///< the same
  Operand* core = nullptr;         ///< [B, heads, dv]
  Operand* gated = nullptr;        ///< the same, where a block has a whole head
  float scale = 1.0F;
  float epsilon = 1e-6F;

  [[nodiscard]] SAMESTATE_HOST_DEVICE int group() const { return 2 * (shape.dk + shape.served * shape.dv); }
  [[nodiscard]] SAMESTATE_HOST_DEVICE int tiles(int columns) const {
    return (shape.dv + columns - 1) / columns;
  }
};

/// A head of a sequence, or `columns` columns of it, by 256 threads: neighbours have four adjacent columns each, and a thread
/// every kGroups-th row, `rows` of them. `vector`: dv is a multiple of four.
template <class Operand, int columns, int rows, bool vector>
struct DeltaDecodeBody {
  using Parameters = DeltaDecodeParameters<Operand>;
  static constexpr int kThreads = 256, kWarps = kThreads / 32;
  static constexpr int kLanes = columns / 4;  ///< threads of a row
  static constexpr int kGroups = kThreads / kLanes;
  static constexpr int kWidth = kGroups * rows;  ///< dk at most
  static constexpr int kResidentBlocks = 2;
  static_assert(kLanes == 16 || kLanes == 32);

  struct Stage {
    alignas(16) float sums[kWarps][2][columns];  ///< S^T q and S^T k of a warp's rows
    alignas(16) float v[columns];                ///< convolved; zero beyond the head, as q and k
    float q[kWidth];
    float k[kWidth];
    float alpha, beta;
  };
  static constexpr std::size_t kSharedBytes = sizeof(Stage);

  struct Place {
    std::int64_t b, head;  ///< the sequence; the head among all sequences'
    int h, key_head, served, column;
    bool real, keeps_keys;  ///< no pad; this block carries on the inputs of q and k
  };
  static SAMESTATE_DEVICE Place place_of(const Parameters& p, std::int64_t item) {
    const DeltaNetShape& s = p.shape;
    Place at;
    const int tiles = p.tiles(columns);
    at.head = quotient(item, tiles);
    at.column = static_cast<int>(item - at.head * tiles) * columns;
    at.b = quotient(at.head, s.heads());
    at.h = static_cast<int>(at.head - at.b * s.heads());
    at.key_head = at.h / s.served;
    at.served = at.h % s.served;
    at.real = p.mask[at.b] != 0.0F;
    at.keeps_keys = at.served == 0 && at.column == 0;
    return at;
  }

  /// A channel of the block's: where its input and its state lie, and where its output goes.
  struct Channel {
    const Operand* x;
    std::int64_t channel;
    float* to;
    bool keeps;
  };
  static SAMESTATE_DEVICE Channel channel_of(const Parameters& p, const Place& at, int i, Stage& stage) {
    const DeltaNetShape& s = p.shape;
    const Operand* const x = p.qkvz + (at.b * s.key_heads + at.key_head) * p.group();
    const int keys = at.key_head * s.dk;
    if (i < s.dk) return {x + i, keys + i, stage.q + i, at.keeps_keys};
    if (i < 2 * s.dk)
      return {x + i, std::int64_t{s.keys()} + keys + i - s.dk, stage.k + i - s.dk, at.keeps_keys};
    const int c = i - 2 * s.dk, column = at.column + c;
    return {x + 2 * s.dk + at.served * s.dv + column, 2 * std::int64_t{s.keys()} + at.h * s.dv + column,
            stage.v + c, true};
  }

  /// The update of the convolution for `at_once` channels 256 apart, the loads of all under way at once. W at most `taps`.
  template <int taps, int at_once>
  static SAMESTATE_DEVICE void convolve(const Parameters& p, const Place& at, int first, int count,
                                        Stage& stage) {
    const std::int64_t channels = p.shape.channels(), past = at.b * (p.W - 1) * channels;
    Channel channel[at_once] = {};
    Operand input[at_once][taps] = {};
    Operand weight[at_once][taps] = {};
    SAMESTATE_UNROLL
    for (int u = 0; u < at_once; ++u) {
      const int i = first + u * kThreads;
      if (i >= count) continue;
      channel[u] = channel_of(p, at, i, stage);
      SAMESTATE_UNROLL
      for (int j = 0; j < taps; ++j) {
        if (j >= p.W) continue;
        weight[u][j] = p.kernel[channel[u].channel * p.W + j];
        if (j + 1 < p.W) {
          input[u][j] = p.past[past + j * channels + channel[u].channel];
        } else if (at.real) {
          input[u][j] = *channel[u].x;
        }
      }
    }
    SAMESTATE_UNROLL
    for (int u = 0; u < at_once; ++u) {
      if (first + u * kThreads >= count) continue;
      float y = 0.0F;
      SAMESTATE_UNROLL
      for (int j = 0; j < taps; ++j) {
        if (j >= p.W) continue;
        y = fused(widen(weight[u][j]), widen(input[u][j]), y);
        if (j > 0 && channel[u].keeps)
          p.carried[past + (j - 1) * channels + channel[u].channel] = input[u][j];
      }
      *channel[u].to = widen(narrow<Operand>(silu_for<Operand>(y)));
    }
  }

  static SAMESTATE_DEVICE void stage_token(const Parameters& p, const Place& at, Stage& stage) {
    const DeltaNetShape& s = p.shape;
    const int values = s.dv - at.column < columns ? s.dv - at.column : columns;
    const int count = 2 * s.dk + values;
    if (p.W <= 4) {
      for (int first = thread_index(); first < count; first += 2 * kThreads)
        convolve<4, 2>(p, at, first, count, stage);
    } else {
      SAMESTATE_NO_UNROLL
      for (int first = thread_index(); first < count; first += kThreads)
        convolve<8, 1>(p, at, first, count, stage);
    }
    for (int i = s.dk + thread_index(); i < kWidth; i += kThreads) stage.q[i] = stage.k[i] = 0.0F;
    for (int c = values + thread_index(); c < columns; c += kThreads) stage.v[c] = 0.0F;
    if (thread_index() == kThreads - 1) {
      const float rate = exponential(p.A_log[at.h]);
      stage.alpha = exponential(-rate * softplus(widen(p.a[at.head]) + p.dt_bias[at.h]));
      stage.beta = logistic(widen(p.b[at.head]));
    }
  }

  /// Four adjacent elements of a row.
  static SAMESTATE_DEVICE Vector<float, 4> load_four(const float* from, int exist) {
    if constexpr (vector) {
      return load_settled<false>(reinterpret_cast<const Vector<float, 4>*>(from), exist > 0);
    } else {
      float x[4];
      SAMESTATE_UNROLL
      for (int c = 0; c < 4; ++c) x[c] = c < exist ? from[c] : 0.0F;
      return narrowed<float>(x);
    }
  }
  template <class Element>
  static SAMESTATE_DEVICE void store_four(Element* to, int exist, const float (&x)[4]) {
    if constexpr (vector) {
      if (exist > 0) *reinterpret_cast<Vector<Element, 4>*>(to) = narrowed<Element>(x);
    } else {
      SAMESTATE_UNROLL
      for (int c = 0; c < 4; ++c) {
        if (c < exist) to[c] = narrow<Element>(x[c]);
      }
    }
  }

  /// Of a head's gated norm this thread's four columns of o, as stored; by the threads of the first row.
  static SAMESTATE_DEVICE void store_gated(const Parameters& p, const Place& at, int exist,
                                           const float (&o)[4]) {
    const DeltaNetShape& s = p.shape;
    const int column = thread_index() % kLanes * 4;
    float squares = 0.0F, y[4];
    SAMESTATE_UNROLL
    for (int c = 0; c < 4; ++c) squares = fused(o[c], o[c], squares);
    SAMESTATE_UNROLL
    for (int mask = kLanes / 2; mask > 0; mask /= 2) squares += shuffle_xor(squares, mask);
    const float factor = factor_of_row<RowNorm::gated>(squares, s.dv, p.epsilon);
    const Operand* const z = p.qkvz + (at.b * s.key_heads + at.key_head) * p.group() + 2 * s.dk +
                             (s.served + at.served) * s.dv + column;
    SAMESTATE_UNROLL
    for (int c = 0; c < 4; ++c) {
      const bool there = c < exist;
      const float gate = there && at.real ? widen(z[c]) : 0.0F;
      y[c] = scaled<RowNorm::gated>(o[c], factor, there ? p.norm[column + c] : 0.0F, gate);
    }
    if (thread_index() < kLanes) store_four(p.gated + at.head * s.dv + column, exist, y);
  }

  static SAMESTATE_DEVICE void run(const Parameters& p, unsigned char* shared) {
    Stage& stage = *reinterpret_cast<Stage*>(shared);
    const DeltaNetShape& s = p.shape;
    const Place at = place_of(p, block_index());
    const int lane = thread_index() % kLanes, row = thread_index() / kLanes;
    const int column = at.column + 4 * lane, exist = s.dv - column;
    const std::int64_t state = (at.head * s.dk + row) * s.dv + column;
    int stride = kGroups * s.dv;
    Vector<float, 4> S[rows];
    SAMESTATE_UNROLL
    for (int r = 0; r < rows; ++r)
      S[r] = load_four(p.initial + state + r * stride, row + r * kGroups < s.dk ? exist : 0);
    stage_token(p, at, stage);
    block_barrier();

    float kq = 0.0F, kk = 0.0F, qq = 0.0F;
    for (int i = lane_index(); i < kWidth; i += 32) {
      const float k = stage.k[i], q = stage.q[i];
      kq = fused(k, q, kq), kk = fused(k, k, kk), qq = fused(q, q, qq);
    }
    kq = warp_sum(kq);
    const float of_k = inverse_root(warp_sum(kk) + 1e-6F), of_q = inverse_root(warp_sum(qq) + 1e-6F);
    float read[2][4] = {};  // S^T q, S^T k
    SAMESTATE_UNROLL
    for (int r = 0; r < rows; ++r) {
      const float q = stage.q[row + r * kGroups], k = stage.k[row + r * kGroups];
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
        if constexpr (kLanes == 16) read[i][c] += shuffle_xor(read[i][c], 16);
      }
      if (lane_index() < kLanes)
        *reinterpret_cast<Vector<float, 4>*>(stage.sums[warp_index()][i] + 4 * lane) =
            narrowed<float>(read[i]);
      SAMESTATE_UNROLL
      for (int c = 0; c < 4; ++c) read[i][c] = 0.0F;
    }
    block_barrier();
    SAMESTATE_UNROLL
    for (int w = 0; w < kWarps; ++w) {
      SAMESTATE_UNROLL
      for (int i = 0; i < 2; ++i) {
        const Quad part = load_quad(stage.sums[w][i] + 4 * lane);
        read[i][0] += part.x, read[i][1] += part.y, read[i][2] += part.z, read[i][3] += part.w;
      }
    }
    const float alpha = stage.alpha, beta = stage.beta;
    float u[4], o[4];
    SAMESTATE_UNROLL
    for (int c = 0; c < 4; ++c) {
      u[c] = beta * (stage.v[4 * lane + c] - alpha * (of_k * read[1][c]));
      const float out = p.scale * fused(u[c], kq * of_k * of_q, alpha * (of_q * read[0][c]));
      o[c] = widen(narrow<Operand>(out));
      u[c] *= of_k;
    }
    stride = recomputed(stride);  // else every row's offset stays in registers from its load on
    SAMESTATE_UNROLL
    for (int r = 0; r < rows; ++r) {
      const float k = stage.k[row + r * kGroups];
      float x[4];
      SAMESTATE_UNROLL
      for (int c = 0; c < 4; ++c) x[c] = fused(k, u[c], alpha * element(S[r], c));
      store_four(p.final + state + r * stride, row + r * kGroups < s.dk ? exist : 0, x);
    }
    if (row == 0) store_four(p.core + at.head * s.dv + column, exist, o);
    if (warp_index() == 0 && s.dv <= columns) store_gated(p, at, exist, o);
  }
};

/// Columns of a head that one block has.
inline int decode_columns(const DeltaNetShape& s) {
  return s.dk <= 128 && s.dv > 64 && s.dv % 4 == 0 ? 128 : 64;
}
/// Whether that is all of it, so that the norm needs no launch of its own.
inline bool decodes_whole_heads(const DeltaNetShape& s) { return s.dv <= decode_columns(s); }

template <class Operand>
void launch_delta_decode(const DeltaDecodeParameters<Operand>& p, cudaStream_t stream) {
  const DeltaNetShape& s = p.shape;
  const unsigned blocks = blocks_of(s.batch * s.heads() * p.tiles(decode_columns(s)), 1);
  const auto with = [&]<class Body>() { launch<Body>(blocks, Body::kSharedBytes, p, stream); };
  if (s.dv % 4 != 0) return with.template operator()<DeltaDecodeBody<Operand, 64, 16, false>>();
  if (decode_columns(s) == 128) return with.template operator()<DeltaDecodeBody<Operand, 128, 16, true>>();
  if (s.dk <= 64) return with.template operator()<DeltaDecodeBody<Operand, 64, 4, true>>();
  with.template operator()<DeltaDecodeBody<Operand, 64, 16, true>>();
}

}  // namespace samestate::cuda
