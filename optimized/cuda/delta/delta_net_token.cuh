#pragma once

#include <cstdint>

#include "optimized/cuda/delta/delta_net.cuh"
#include "optimized/cuda/delta/token_fma_state.cuh"
#include "optimized/cuda/pointwise/norms.cuh"

/// One token of the Gated DeltaNet layer between its projections (EQUATIONS 5.6), in one launch: the convolution and what it
/// carries on, gates, lengths of q and k, the rule and, where one block has all columns of a head, the gated norm. Everything
/// before the rule's sums is computed while the state is on its way.
namespace samestate::cuda {

template <class Operand>
struct DeltaDecodeParameters {
  DeltaNetShape shape;  ///< shape for one token
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
  [[nodiscard]] SAMESTATE_HOST_DEVICE int tiles(int columns) const { return delta_tiles(shape.dv, columns); }
};

/// A head of a sequence, or `columns` columns of it.
template <class Operand, int columns, int rows, bool vector>
struct DeltaDecodeBody {
  using Parameters = DeltaDecodeParameters<Operand>;
  using State = DeltaState<columns, rows, vector>;
  static constexpr int kThreads = State::kThreads, kLanes = State::kLanes;
  static constexpr int kResidentBlocks = 2;

  struct Stage {
    typename State::Sums sums;
    typename State::Token token;  ///< convolved
  };
  static constexpr std::size_t kSharedBytes = sizeof(Stage);

  struct Place : DeltaPlace {
    int key_head, served;
    bool real, keeps_keys;  ///< no pad; this block carries on the inputs of q and k
  };
  static SAMESTATE_DEVICE Place place_of(const Parameters& p, std::int64_t item) {
    const DeltaNetShape& s = p.shape;
    Place at;
    static_cast<DeltaPlace&>(at) = delta_place(item, p.tiles(columns), s.heads(), columns);
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
  static SAMESTATE_DEVICE Channel channel_of(const Parameters& p, const Place& at, int i,
                                             typename State::Token& token) {
    const DeltaNetShape& s = p.shape;
    const Operand* const x = p.qkvz + (at.b * s.key_heads + at.key_head) * p.group();
    const int keys = at.key_head * s.dk;
    if (i < s.dk) return {x + i, keys + i, token.q + i, at.keeps_keys};
    if (i < 2 * s.dk)
      return {x + i, std::int64_t{s.keys()} + keys + i - s.dk, token.k + i - s.dk, at.keeps_keys};
    const int c = i - 2 * s.dk, column = at.column + c;
    return {x + 2 * s.dk + at.served * s.dv + column, 2 * std::int64_t{s.keys()} + at.h * s.dv + column,
            token.v + c, true};
  }

  /// The update of the convolution for `at_once` channels 256 apart, the loads of all under way at once. W at most `taps`.
  template <int taps, int at_once>
  static SAMESTATE_DEVICE void convolve(const Parameters& p, const Place& at, int first, int count,
                                        typename State::Token& token) {
    const std::int64_t channels = p.shape.channels(), past = at.b * (p.W - 1) * channels;
    Channel channel[at_once] = {};
    Operand input[at_once][taps] = {};
    Operand weight[at_once][taps] = {};
    SAMESTATE_UNROLL
    for (int u = 0; u < at_once; ++u) {
      const int i = first + u * kThreads;
      if (i >= count) continue;
      channel[u] = channel_of(p, at, i, token);
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

  static SAMESTATE_DEVICE void stage_token(const Parameters& p, const Place& at,
                                           typename State::Token& token) {
    const DeltaNetShape& s = p.shape;
    const int values = s.dv - at.column < columns ? s.dv - at.column : columns;
    const int count = 2 * s.dk + values;
    if (p.W <= 4) {
      for (int first = thread_index(); first < count; first += 2 * kThreads)
        convolve<4, 2>(p, at, first, count, token);
    } else {
      SAMESTATE_NO_UNROLL
      for (int first = thread_index(); first < count; first += kThreads)
        convolve<8, 1>(p, at, first, count, token);
    }
    State::clear_beyond(token, s.dk, values);
    if (thread_index() == kThreads - 1)
      token.gates = delta_gates(p.a[at.head], p.b[at.head], p.A_log[at.h], p.dt_bias[at.h]);
  }

  /// Stores this thread's four columns of o after a head's gated norm; only the threads of the first row do.
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
    if (thread_index() < kLanes) store_four<vector>(p.gated + at.head * s.dv + column, exist, y);
  }

  static SAMESTATE_DEVICE void run(const Parameters& p, unsigned char* shared) {
    Stage& stage = *reinterpret_cast<Stage*>(shared);
    const DeltaNetShape& s = p.shape;
    const Place at = place_of(p, block_index());
    const int column = at.column + State::column(), exist = s.dv - column;
    const std::int64_t head = at.head * s.dk * s.dv + column;
    State state;
    state.load(p.initial + head, s.dk, s.dv, exist);
    stage_token(p, at, stage.token);
    block_barrier();
    float o[4];
    state.pass(stage.token, stage.sums, true, p.scale, o);
    SAMESTATE_UNROLL
    for (float& x : o) x = widen(narrow<Operand>(x));
    state.store(p.final + head, s.dk, s.dv, exist);
    if (State::row() == 0) store_four<vector>(p.core + at.head * s.dv + column, exist, o);
    if (warp_index() == 0 && s.dv <= columns) store_gated(p, at, exist, o);
  }
};

/// Columns of a head that one block has.
inline int decode_columns(const DeltaNetShape& s) { return delta_columns(s.dk, s.dv); }
/// Returns true if the kernel computes whole heads, so that the norm needs no launch of its own.
inline bool decodes_whole_heads(const DeltaNetShape& s) { return s.dv <= decode_columns(s); }

template <class Operand>
void launch_delta_decode(const DeltaDecodeParameters<Operand>& p, cudaStream_t stream) {
  const DeltaNetShape& s = p.shape;
  const unsigned blocks = blocks_of(s.batch * s.heads() * p.tiles(decode_columns(s)), 1);
  with_delta_state(s.dk, s.dv, [&]<int columns, int rows, bool vector>() {
    using Body = DeltaDecodeBody<Operand, columns, rows, vector>;
    launch<Body>(blocks, Body::kSharedBytes, p, stream);
  });
}

}  // namespace samestate::cuda
