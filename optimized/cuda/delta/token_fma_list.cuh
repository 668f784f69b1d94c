#pragma once

#include <cstdint>

#include "optimized/cuda/dendritic/lists.cuh"
#include "optimized/cuda/pointwise/pointwise.cuh"

/// The gated delta rule of a layer on the tokens of lists (EQUATIONS 5.5; of the dendritic layer 7.3, steps 9 and 14), token by
/// token:
///   u = beta (v - (e^g S)^T k),  S <- e^g S + k u^T,  o = S^T q.
namespace samestate::cuda {

template <class Operand>
struct RuleParameters {
  DendriticShape shape;
  const ListEntry* entries = nullptr;  ///< [B, E, H, T]
  const int* length = nullptr;         ///< [B, E, H]
  const Operand* q = nullptr;          ///< [B, T, key heads, slots, d] convolved, and k
  const Operand* k = nullptr;
  const float* q_factor = nullptr;  ///< [B, T, key heads, slots, N], and of k
  const float* k_factor = nullptr;
  const Operand* v = nullptr;  ///< [B, T, H, dv] convolved
  const Operand* a = nullptr;  ///< [B, T, E, H], and b: before the gates
  const Operand* b = nullptr;
  const float* A_log = nullptr;  ///< [E, H], and dt_bias
  const float* dt_bias = nullptr;
  const float* mask = nullptr;     ///< [B, T], 0 for a pad; null if there are no pads
  const float* initial = nullptr;  ///< [B, N, E, H, w, dv]
  float* final = nullptr;          ///< the same
  Operand* o = nullptr;            ///< [B, T, H, slots, N, dv]
  float scale = 1.0F;              ///< w^-1/2
  int group = 1;                   ///< neighbouring heads that have one q and one k
  int key_heads = 1;               ///< heads / group

  /// Returns the row of q and k; `token` counts the tokens of the batch.
  [[nodiscard]] SAMESTATE_HOST_DEVICE std::int64_t key_row(std::int64_t token, int key_head, int slot) const {
    return (token * key_heads + key_head) * shape.slots() + slot;
  }
  /// Blocks a virtual head.
  [[nodiscard]] SAMESTATE_HOST_DEVICE int tiles(int columns) const {
    return (shape.values + columns - 1) / columns;
  }
};

/// A virtual head and 64 columns of its state by four warps of 16, in registers for the whole list: lane 8 g + c holds
/// `rows` rows of columns 2 c and 2 c + 1, of every 16 rows those from 4 g on. Width at most 4 rows.
///
/// The state is held without the decay since its last scaling, S = decay s: three operations an element instead of four.
template <class Operand, int rows>
struct RuleBody {
  static_assert(rows % 4 == 0);
  using Parameters = RuleParameters<Operand>;
  static constexpr int kThreads = 128;
  static constexpr int kColumns = 64;
  static constexpr int kWidth = 4 * rows;
  static constexpr int kTokens = 16;  ///< staged at once
  /// Below this the decay goes into the state: 1 / decay stays far from what fp32 holds.
  static constexpr float kLeastDecay = 0x1p-20F;

  struct alignas(16) Stage {
    float q[kTokens][kWidth];  ///< times scale and factor; zero beyond the window
    float k[kTokens][kWidth];
    float v[kTokens][kColumns];
    float o[kTokens][kColumns];
    ListEntry entry[kTokens];
    std::int64_t slot_row[kTokens], key_row[kTokens];
    float q_factor[kTokens], k_factor[kTokens];
    float beta[kTokens];
    float alpha[kTokens];
    float decay[kTokens];    ///< since the last scaling, this token's included
    float inverse[kTokens];  ///< inverse of the decay
    float scaling[kTokens];  ///< factor of the state before the token; 1 if there is none
  };
  static constexpr std::size_t kSharedBytes = sizeof(Stage);

  /// Where a block works.
  struct Place {
    std::int64_t list, b, state;
    int e, h, window, column, tokens;
  };

  static SAMESTATE_DEVICE Place place_of(const Parameters& p, std::int64_t item) {
    const DendriticShape& s = p.shape;
    Place at;
    at.column = static_cast<int>(item % p.tiles(kColumns)) * kColumns;
    const std::int64_t virtual_head = item / p.tiles(kColumns);
    at.window = static_cast<int>(virtual_head % s.windows);
    at.list = virtual_head / s.windows;
    at.h = static_cast<int>(at.list % s.heads);
    at.e = static_cast<int>(at.list / s.heads % s.branches());
    at.b = at.list / s.heads / s.branches();
    at.state = (((at.b * s.windows + at.window) * s.branches() + at.e) * s.heads + at.h) * s.width * s.values;
    at.tokens = p.length[at.list];
    return at;
  }

  /// Gates, factors and places of tokens [first, first + count) of the list, by warp 0.
  static SAMESTATE_DEVICE void stage_gates(const Parameters& p, const Place& at, int first, int count,
                                           Stage& stage) {
    const DendriticShape& s = p.shape;
    const int i = lane_index();
    if (i < count) {
      const ListEntry entry = p.entries[at.list * s.tokens + first + i];
      const std::int64_t token = at.b * s.tokens + entry.token;
      const std::int64_t slot_row = (token * s.heads + at.h) * s.slots() + entry.slot;
      const int m = at.e * s.heads + at.h;
      const std::int64_t gate = token * s.branches() * s.heads + m;
      const bool real = p.mask == nullptr || p.mask[token] != 0.0F;
      const float rate = exponential(p.A_log[m]);
      stage.entry[i] = entry;
      const std::int64_t key_row = p.key_row(token, at.h / p.group, entry.slot);
      stage.slot_row[i] = slot_row;
      stage.key_row[i] = key_row;
      stage.q_factor[i] = p.q_factor[key_row * s.windows + at.window] * p.scale;
      stage.k_factor[i] = p.k_factor[key_row * s.windows + at.window];
      stage.beta[i] = real ? logistic(widen(p.b[gate])) : 0.0F;
      stage.alpha[i] = real ? exponential(-rate * softplus(widen(p.a[gate]) + p.dt_bias[m])) : 1.0F;
    }
    warp_barrier();
    if (i == 0) {
      float decay = 1.0F;
      for (int t = 0; t < count; ++t) {
        decay *= stage.alpha[t];
        const bool small = decay < kLeastDecay;
        stage.scaling[t] = small ? decay : 1.0F;
        decay = small ? 1.0F : decay;
        stage.decay[t] = decay;
      }
    }
    warp_barrier();
    if (i < count) stage.inverse[i] = 1.0F / stage.decay[i];
  }

  /// Rows of q, k and v, by all threads, n elements at a time; n above 1 where it divides w, d, the stride and dv.
  template <int n>
  static SAMESTATE_DEVICE void stage_rows(const Parameters& p, const Place& at, int count, Stage& stage) {
    using Elements = Vector<Operand, n>;
    constexpr int kAccesses = kWidth / n;
    const DendriticShape& s = p.shape;
    for (int i = thread_index(); i < 2 * count * kAccesses; i += kThreads) {
      const bool is_k = i >= count * kAccesses;
      const int t = i / kAccesses - (is_k ? count : 0), c = i % kAccesses * n;
      float* const to = is_k ? stage.k[t] : stage.q[t];
      const float factor = is_k ? stage.k_factor[t] : stage.q_factor[t];
      Elements x{};
      if (c < s.width)
        x = *reinterpret_cast<const Elements*>((is_k ? p.k : p.q) + stage.key_row[t] * s.channels +
                                               at.window * s.stride + c);
      SAMESTATE_UNROLL
      for (int j = 0; j < n; ++j) to[c + j] = element(x, j) * factor;
    }
    for (int i = thread_index(); i < count * (kColumns / n); i += kThreads) {
      const int t = i / (kColumns / n), c = i % (kColumns / n) * n;
      Elements x{};
      if (at.column + c < s.values)
        x = *reinterpret_cast<const Elements*>(
            p.v + ((at.b * s.tokens + stage.entry[t].token) * s.heads + at.h) * s.values + at.column + c);
      SAMESTATE_UNROLL
      for (int j = 0; j < n; ++j) stage.v[t][c + j] = element(x, j);
    }
  }

  /// Rows of o, as stage_rows.
  template <int n>
  static SAMESTATE_DEVICE void store_rows(const Parameters& p, const Place& at, int count,
                                          const Stage& stage) {
    const DendriticShape& s = p.shape;
    for (int i = thread_index(); i < count * (kColumns / n); i += kThreads) {
      const int t = i / (kColumns / n), c = i % (kColumns / n) * n;
      if (at.column + c >= s.values) continue;
      float x[n];
      SAMESTATE_UNROLL
      for (int j = 0; j < n; ++j) x[j] = stage.o[t][c + j];
      *reinterpret_cast<Vector<Operand, n>*>(p.o + (stage.slot_row[t] * s.windows + at.window) * s.values +
                                             at.column + c) = narrowed<Operand>(x);
    }
  }

  /// One token on this lane's part of the state.
  static SAMESTATE_DEVICE void step(float (&state)[2][rows], Stage& stage, int t, int column) {
    const int group = lane_index() / 8;
    if (const float scaling = stage.scaling[t]; scaling != 1.0F) {
      SAMESTATE_UNROLL
      for (int r = 0; r < rows; ++r) state[0][r] *= scaling, state[1][r] *= scaling;
    }
    const float decay = stage.decay[t];
    float read[2] = {}, out[2] = {};
    SAMESTATE_UNROLL
    for (int r = 0; r < rows; r += 4) {
      const Quad k = load_quad(stage.k[t] + 4 * r + 4 * group);
      SAMESTATE_UNROLL
      for (int c = 0; c < 2; ++c) {
        read[c] = fused(k.x, state[c][r], read[c]);
        read[c] = fused(k.y, state[c][r + 1], read[c]);
        read[c] = fused(k.z, state[c][r + 2], read[c]);
        read[c] = fused(k.w, state[c][r + 3], read[c]);
      }
    }
    const Pair v = load_pair(stage.v[t] + column);
    float u[2];
    SAMESTATE_UNROLL
    for (int c = 0; c < 2; ++c) {
      read[c] += shuffle_xor(read[c], 8);
      read[c] += shuffle_xor(read[c], 16);
      u[c] = stage.beta[t] * fused(-decay, read[c], c == 0 ? v.x : v.y) * stage.inverse[t];
    }
    SAMESTATE_UNROLL
    for (int r = 0; r < rows; r += 4) {
      const Quad k = load_quad(stage.k[t] + 4 * r + 4 * group);
      const Quad q = load_quad(stage.q[t] + 4 * r + 4 * group);
      SAMESTATE_UNROLL
      for (int c = 0; c < 2; ++c) {
        state[c][r] = fused(k.x, u[c], state[c][r]);
        state[c][r + 1] = fused(k.y, u[c], state[c][r + 1]);
        state[c][r + 2] = fused(k.z, u[c], state[c][r + 2]);
        state[c][r + 3] = fused(k.w, u[c], state[c][r + 3]);
        out[c] = fused(q.x, state[c][r], out[c]);
        out[c] = fused(q.y, state[c][r + 1], out[c]);
        out[c] = fused(q.z, state[c][r + 2], out[c]);
        out[c] = fused(q.w, state[c][r + 3], out[c]);
      }
    }
    SAMESTATE_UNROLL
    for (int c = 0; c < 2; ++c) {
      out[c] += shuffle_xor(out[c], 8);
      out[c] += shuffle_xor(out[c], 16);
    }
    if (group == 0) store_pair(stage.o[t] + column, decay * out[0], decay * out[1]);
  }

  /// The state of this lane there or back; `visit(element of memory, of registers)` for what exists.
  template <class Visit>
  static SAMESTATE_DEVICE void each_of_state(const Parameters& p, const Place& at, int column,
                                             float (&state)[2][rows], Visit&& visit) {
    const DendriticShape& s = p.shape;
    SAMESTATE_UNROLL
    for (int r = 0; r < rows; ++r) {
      const int row = r / 4 * 16 + lane_index() / 8 * 4 + r % 4;
      SAMESTATE_UNROLL
      for (int c = 0; c < 2; ++c) {
        if (row < s.width && at.column + column + c < s.values)
          visit(at.state + static_cast<std::int64_t>(row) * s.values + at.column + column + c, state[c][r]);
      }
    }
  }

  static SAMESTATE_DEVICE void run(const Parameters& p, unsigned char* shared) {
    constexpr int kVector = 16 / static_cast<int>(sizeof(Operand));
    Stage& stage = *reinterpret_cast<Stage*>(shared);
    const DendriticShape& s = p.shape;
    const bool vector = s.width % kVector == 0 && s.channels % kVector == 0 && s.stride % kVector == 0 &&
                        s.values % kVector == 0;
    const int column = 16 * warp_index() + 2 * (lane_index() % 8);
    const std::int64_t items = s.lists() * s.windows * p.tiles(kColumns);
    for (std::int64_t item = block_index(); item < items; item += grid_blocks()) {
      const Place at = place_of(p, item);
      float state[2][rows] = {};
      each_of_state(p, at, column, state, [&](std::int64_t i, float& x) { x = p.initial[i]; });
      for (int first = 0; first < at.tokens; first += kTokens) {
        const int count = at.tokens - first < kTokens ? at.tokens - first : kTokens;
        if (warp_index() == 0) stage_gates(p, at, first, count, stage);
        block_barrier();
        vector ? stage_rows<kVector>(p, at, count, stage) : stage_rows<1>(p, at, count, stage);
        block_barrier();
        SAMESTATE_NO_UNROLL
        for (int t = 0; t < count; ++t) step(state, stage, t, column);
        const float decay = stage.decay[count - 1];
        SAMESTATE_UNROLL
        for (int r = 0; r < rows; ++r) state[0][r] *= decay, state[1][r] *= decay;
        block_barrier();
        vector ? store_rows<kVector>(p, at, count, stage) : store_rows<1>(p, at, count, stage);
        block_barrier();
      }
      each_of_state(p, at, column, state, [&](std::int64_t i, float& x) { p.final[i] = x; });
    }
  }
};

}  // namespace samestate::cuda
