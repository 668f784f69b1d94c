#pragma once

#include <cstdint>

#include "optimized/cuda/delta/token_fma_state.cuh"
#include "optimized/cuda/host/grid.cuh"

/// The serving step of Gated DeltaNet in one launch: gates, l2norm and the rule on states in slots of a pool, of one token or a
/// few. Memory-bound: a state is read once and written once, and stays in registers from token to token, of which the next one is
/// on its way meanwhile.
namespace samestate::cuda {

template <class Operand>
struct GatedDeltaStepParameters {
  const Operand* q = nullptr;  ///< [B, T, Hk, dk], and k
  const Operand* k = nullptr;
  const Operand* v = nullptr;  ///< [B, T, Hv, dv]
  const Operand* a = nullptr;  ///< [B, T, Hv], and b: before the gates
  const Operand* b = nullptr;
  const float* A_log = nullptr;  ///< [Hv], and dt_bias
  const float* dt_bias = nullptr;
  const float* slot = nullptr;  ///< [B], whole numbers: a row of the request's pool, or -1 for none
  const float* pool = nullptr;  ///< [B, P, Hv, dk, dv]
  Operand* o = nullptr;         ///< [B, T, Hv, dv]
  float* next = nullptr;        ///< as pool
  std::int64_t batch = 0, tokens = 0, slots = 1;
  int key_heads = 1, heads = 1, dk = 1, dv = 1;  ///< dk at most 256
  float scale = 1.0F;
  bool normalises = true;

  /// Elements of a slot.
  [[nodiscard]] SAMESTATE_HOST_DEVICE std::int64_t of_slot() const { return std::int64_t{heads} * dk * dv; }
};

/// A block takes a head of a request, or `columns` columns of it. The blocks after these in the grid copy the
/// rows that belong to no request.
template <class Operand, int columns, int rows, bool vector>
struct GatedDeltaStepBody {
  using Parameters = GatedDeltaStepParameters<Operand>;
  using State = DeltaState<columns, rows, vector>;
  static constexpr int kThreads = State::kThreads;
  static constexpr int kResidentBlocks = 2;
  static constexpr bool kStartsEarly = true;

  struct Stage {
    typename State::Sums sums;
    /// A token's is written while another one's may still be read: by then all have passed the barrier in the one after that.
    typename State::Token tokens[2];
  };
  static constexpr std::size_t kSharedBytes = sizeof(Stage);

  /// Words are moved as stored, never as numbers: a row without an owner may hold anything.
  static constexpr int kWords = vector ? 4 : 1, kCopies = 4;
  using Words = Vector<float, kWords>;
  static constexpr int kCopied = kThreads * kCopies * kWords;  ///< elements that a block copies

  static SAMESTATE_HOST_DEVICE std::int64_t steps(const Parameters& p) {
    return p.batch * p.heads * delta_tiles(p.dv, columns);
  }
  /// Blocks that share a slot's copy.
  static SAMESTATE_HOST_DEVICE std::int64_t parts(const Parameters& p) {
    return (p.of_slot() + kCopied - 1) / kCopied;
  }

  /// The data of a token that a thread has fetched, as they came from memory.
  struct Fetched {
    static constexpr int kCount = (2 * State::kWidth + columns + kThreads - 1) / kThreads;
    Operand x[kCount];
    Operand a, b;
  };
  /// One block's part of the data of a token.
  struct Place : DeltaPlace {
    int key_head, values, slot;
  };

  static SAMESTATE_DEVICE void fetch(const Parameters& p, const Place& at, std::int64_t t, Fetched& fetched) {
    const std::int64_t token = at.b * p.tokens + t, head = token * p.heads + at.h;
    const std::int64_t key = (token * p.key_heads + at.key_head) * p.dk;
    SAMESTATE_UNROLL
    for (int u = 0; u < Fetched::kCount; ++u) {
      const int i = thread_index() + u * kThreads;
      const Operand* from = p.q + key + i;
      if (i >= p.dk) from = p.k + key + (i - p.dk);
      if (i >= 2 * p.dk) from = p.v + head * p.dv + at.column + (i - 2 * p.dk);
      fetched.x[u] = i < 2 * p.dk + at.values ? *from : Operand{};
    }
    if (thread_index() == kThreads - 1) fetched.a = p.a[head], fetched.b = p.b[head];
  }

  static SAMESTATE_DEVICE void put(const Parameters& p, const Place& at, const Fetched& fetched,
                                   typename State::Token& token) {
    SAMESTATE_UNROLL
    for (int u = 0; u < Fetched::kCount; ++u) {
      const int i = thread_index() + u * kThreads;
      float* to = token.q + i;
      if (i >= p.dk) to = token.k + (i - p.dk);
      if (i >= 2 * p.dk) to = token.v + (i - 2 * p.dk);
      if (i < 2 * p.dk + at.values) *to = widen(fetched.x[u]);
    }
    if (thread_index() == kThreads - 1)
      token.gates = delta_gates(fetched.a, fetched.b, p.A_log[at.h], p.dt_bias[at.h]);
  }

  static SAMESTATE_DEVICE void step(const Parameters& p, const Place& at, Stage& stage) {
    const int column = at.column + State::column(), exist = p.dv - column;
    const std::int64_t state_at = ((at.b * p.slots + at.slot) * p.heads + at.h) * p.dk * p.dv + column;
    State state;
    state.load(p.pool + state_at, p.dk, p.dv, exist);
    Fetched fetched = {};
    if (p.tokens > 0) fetch(p, at, 0, fetched);
    for (typename State::Token& token : stage.tokens) State::clear_beyond(token, p.dk, at.values);
    SAMESTATE_NO_UNROLL
    for (std::int64_t t = 0; t < p.tokens; ++t) {
      typename State::Token& token = stage.tokens[t % 2];
      put(p, at, fetched, token);
      block_barrier();
      if (t + 1 < p.tokens) fetch(p, at, t + 1, fetched);
      float o[4];
      state.pass(token, stage.sums, p.normalises, p.scale, o);
      if (State::row() == 0)
        store_four<vector>(p.o + ((at.b * p.tokens + t) * p.heads + at.h) * p.dv + column, exist, o);
    }
    state.store(p.next + state_at, p.dk, p.dv, exist);
  }

  /// Clears the output of a request without a state.
  static SAMESTATE_DEVICE void clear_output(const Parameters& p, const Place& at) {
    const std::int64_t count = p.tokens * at.values;
    for (std::int64_t i = thread_index(); i < count; i += kThreads) {
      const std::int64_t t = quotient(i, at.values);
      p.o[((at.b * p.tokens + t) * p.heads + at.h) * p.dv + at.column + (i - t * at.values)] =
          narrow<Operand>(0.0F);
    }
  }

  /// Part of a row of the pool that is not the request's.
  static SAMESTATE_DEVICE void copy(const Parameters& p, std::int64_t item) {
    const std::int64_t row = quotient(item, parts(p)), b = quotient(row, p.slots);
    if (row - b * p.slots == static_cast<int>(p.slot[b])) return;
    const std::int64_t first = (item - row * parts(p)) * kCopied + thread_index() * kWords;
    const std::int64_t from = row * p.of_slot() + first;
    Words words[kCopies];
    SAMESTATE_UNROLL
    for (int i = 0; i < kCopies; ++i) {
      if (first + i * kThreads * kWords < p.of_slot())
        words[i] = *reinterpret_cast<const Words*>(p.pool + from + i * kThreads * kWords);
    }
    SAMESTATE_UNROLL
    for (int i = 0; i < kCopies; ++i) {
      if (first + i * kThreads * kWords < p.of_slot())
        *reinterpret_cast<Words*>(p.next + from + i * kThreads * kWords) = words[i];
    }
  }

  static SAMESTATE_DEVICE void run(const Parameters& p, unsigned char* shared) {
    if (block_index() >= steps(p)) return copy(p, block_index() - steps(p));
    Place at;
    static_cast<DeltaPlace&>(at) = delta_place(block_index(), delta_tiles(p.dv, columns), p.heads, columns);
    at.key_head = at.h / (p.heads / p.key_heads);
    at.values = p.dv - at.column < columns ? p.dv - at.column : columns;
    at.slot = static_cast<int>(p.slot[at.b]);
    if (at.slot < 0) return clear_output(p, at);
    step(p, at, *reinterpret_cast<Stage*>(shared));
  }

  static void launch(const Parameters& p, cudaStream_t stream) {
    cuda::launch<GatedDeltaStepBody>(blocks_of(steps(p) + p.batch * p.slots * parts(p), 1), kSharedBytes, p,
                                     stream);
  }
};

template <class Operand>
void launch_gated_delta_step(const GatedDeltaStepParameters<Operand>& p, cudaStream_t stream) {
  with_delta_state(p.dk, p.dv, p.batch * p.heads, [&]<int columns, int rows, bool vector>() {
    GatedDeltaStepBody<Operand, columns, rows, vector>::launch(p, stream);
  });
}

}  // namespace samestate::cuda
