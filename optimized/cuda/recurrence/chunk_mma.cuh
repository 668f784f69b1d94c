#pragma once

#include <cstdint>

#include "optimized/cuda/recurrence/recurrence.cuh"
#include "optimized/cuda/recurrence/state_tiles.cuh"

/// The recurrences of recurrence.cuh in bf16 on tensor cores, 32 tokens at a time: o = gamma^(i+1) S^T q + (q k^T o gamma^(i-j)) v,
/// S <- gamma^n S + (gamma^(n-1-j) k)^T v. q, k and v are multiplied as they were stored; the state, the scores and values with a power
/// of gamma are three numbers of bf16 whose sum they are.
namespace samestate::cuda {

/// 64 columns of a state through a segment; dk at most kWidth. `writes`, `reads` as in RecurrenceSegments.
template <int kWidth, bool writes, bool reads>
struct RecurrenceTiles {
  using Parameters = RecurrenceParameters<Bf16>;
  using Tiles = StateTiles<kWidth>;
  static constexpr int kThreads = 128;
  static constexpr int kResidentBlocks = Tiles::kResidentBlocks;
  static constexpr int kT = Tiles::kT, kColumns = Tiles::kColumns;
  static_assert(kColumns == kRecurrenceColumns);

  struct alignas(16) Stage {
    typename Tiles::Rows q, k;
    typename Tiles::Values v;  ///< afterwards o
  };
  struct alignas(16) Shared {
    Stage stages[2];
    typename Tiles::Scores scores;
    float power[kT + 4];      ///< gamma^i
    float geometric[kT + 4];  ///< the sum of the powers below
    float after[kT];          ///< gamma^(i+1)
    float back[kT];           ///< gamma^(n-1-j) of the tile's tokens
    float sums[2][kT];        ///< sums of a query's scores, by halves of the keys
    float of_z[kT];           ///< z before the tile . q
    float z[kWidth];
  };

  struct Place {
    std::int64_t of = 0;  ///< state
    std::int64_t segment = 0;
    std::int64_t tokens = 0;
    std::int64_t row = 0;  ///< the row of the first token in q, k and v
    int head = 0;
    int column = 0;
  };

  static SAMESTATE_HOST_DEVICE int column_tiles(const Parameters& p) {
    return (p.dv + kColumns - 1) / kColumns;
  }
  static void launch(const Parameters& p, cudaStream_t stream) {
    const std::int64_t segments = reads || p.whole ? p.segments : p.segments - 1;
    cuda::launch<RecurrenceTiles>(blocks_of(p.states() * column_tiles(p) * segments, 1), sizeof(Shared), p,
                                  stream);
  }

  static SAMESTATE_DEVICE Place place_of(const Parameters& p) {
    Place at;
    const std::int64_t rest = quotient(block_index(), column_tiles(p));
    at.segment = quotient(rest, p.states());
    at.of = rest - at.segment * p.states();
    at.column = static_cast<int>(block_index() - rest * column_tiles(p)) * kColumns;
    const std::int64_t sequence = quotient(at.of, p.heads), first = at.segment * p.segment;
    at.head = static_cast<int>(at.of - sequence * p.heads);
    at.tokens = p.tokens - first < p.segment ? p.tokens - first : p.segment;
    at.row = sequence * p.tokens + first;
    return at;
  }

  /// Stages zeros where there is no token, key or column.
  static SAMESTATE_DEVICE void stage_tile(const Parameters& p, const Place& at, std::int64_t begin,
                                          Stage& stage) {
    const int t = thread_index() / 4, part = thread_index() % 4;
    const bool exists = begin + t < at.tokens;
    const std::int64_t head = (at.row + begin + t) * p.heads + at.head;
    const Bf16* const q = p.q + head * p.dk;
    const Bf16* const k = p.k + head * p.dk;
    const Bf16* const v = p.v + head * p.dv + at.column;
    if ((p.dk | p.dv) % 8 == 0) {
      SAMESTATE_UNROLL
      for (int c = 8 * part; c < kWidth; c += 32) {
        if constexpr (reads) stage_piece(&stage.q[t][c], q + c, exists && c < p.dk);
        if constexpr (writes) stage_piece(&stage.k[t][c], k + c, exists && c < p.dk);
      }
      SAMESTATE_UNROLL
      for (int c = 8 * part; c < kColumns; c += 32) {
        if constexpr (writes) stage_piece(&stage.v[t][c], v + c, exists && at.column + c < p.dv);
      }
    } else {
      if constexpr (reads) stage_elements<kWidth>(stage.q[t], q, exists ? p.dk : 0, part);
      if constexpr (writes) {
        stage_elements<kWidth>(stage.k[t], k, exists ? p.dk : 0, part);
        stage_elements<kColumns>(stage.v[t], v, exists ? p.dv - at.column : 0, part);
      }
    }
    copies_commit();
  }

  /// The scores, whose sums over the keys are part of z . q.
  static SAMESTATE_DEVICE void make_scores(const Parameters& p, const Stage& stage, Shared& shared) {
    const int lane = lane_index(), row = Tiles::first_query() + lane / 4, keys = Tiles::first_key() / 16;
    float sums[2] = {};
    if (Tiles::first_key() <= Tiles::first_query()) {
      Tiles::make_scores(stage.q, stage.k, p.dk, shared.scores, [&](int i, int j, float sum) {
        if (j > i) return 0.0F;
        const float score = p.decays ? sum * shared.power[i - j] : sum;
        sums[(i - row) / 8] += score;
        return score;
      });
    }
    if (p.output != RecurrenceOutput::over_sums) return;
    SAMESTATE_UNROLL
    for (int half = 0; half < 2; ++half) {
      sums[half] += shuffle_xor(sums[half], 1);
      sums[half] += shuffle_xor(sums[half], 2);
      if (lane % 4 == 0) shared.sums[keys][row + 8 * half] = sums[half];
    }
    const int t = thread_index() / 4;
    float of_z = 0.0F;
    for (int c = thread_index() % 4; c < p.dk; c += 4) of_z = fused(widen(stage.q[t][c]), shared.z[c], of_z);
    of_z += shuffle_xor(of_z, 1);
    of_z += shuffle_xor(of_z, 2);
    if (thread_index() % 4 == 0) shared.of_z[t] = of_z;
  }

  /// Returns the factor of o for a token of the tile; s belongs to the token before the tile.
  static SAMESTATE_DEVICE float output_factor(const Parameters& p, const Shared& shared, int t, float s) {
    if (p.output == RecurrenceOutput::over_sums)
      return 1.0F / (shared.of_z[t] + (shared.sums[0][t] + shared.sums[1][t]));
    if (p.output == RecurrenceOutput::over_root)
      return inverse_root(fused(shared.after[t], s, shared.geometric[t + 1]));
    return 1.0F;
  }

  static SAMESTATE_DEVICE void store_outputs(const Parameters& p, const Place& at, std::int64_t begin, int n,
                                             float s, const Shared& shared, typename Tiles::Columns& o,
                                             Stage& stage) {
    const auto row = [&](auto* rows, int t) {
      return rows + ((at.row + begin + t) * p.heads + at.head) * p.dv + at.column;
    };
    if (p.output == RecurrenceOutput::raw) {
      Tiles::each_of_columns(o, [&](int t, int column, float element) {
        if (t < n && at.column + column < p.dv) row(p.raw, t)[column] = element;
      });
      return;
    }
    warp_barrier();  // every lane has read v
    Tiles::each_of_columns(o, [&](int t, int column, float element) {
      const bool divided = p.output != RecurrenceOutput::rounded && t < n;
      stage.v[t][column] = narrow<Bf16>(divided ? element * output_factor(p, shared, t, s) : element);
    });
    Tiles::store_columns(stage.v, n, p.dv - at.column, p.dv % 8 == 0, [&](int t) { return row(p.o, t); });
  }

  /// Where the state before the segment is; null: zeros.
  static SAMESTATE_DEVICE const float* state_before(const Parameters& p, const Place& at) {
    if constexpr (!reads) return nullptr;
    if (writes && at.segment > 0) return p.carried + (at.segment - 1) * p.states() * p.dk * p.dv;
    return p.state;
  }

  /// `visit(offset, element)` for the elements of [states, dk, dv] that this lane has.
  template <class Visit>
  static SAMESTATE_DEVICE void each_of_state(const Parameters& p, const Place& at,
                                             typename Tiles::State& state, Visit&& visit) {
    Tiles::each_of_state(state, [&](int key, int column, float& element) {
      if (key < p.dk && at.column + column < p.dv)
        visit((at.of * p.dk + key) * p.dv + at.column + column, element);
    });
  }

  static SAMESTATE_DEVICE void leave(const Parameters& p, const Place& at, float s, const Shared& shared,
                                     typename Tiles::State& state) {
    if (reads && (at.segment < p.segments - 1 || p.final_state == nullptr)) return;
    const std::int64_t behind = at.segment * p.states() * p.dk;
    float* const to = reads ? p.final_state : p.carried + behind * p.dv;
    const bool over_root = reads && p.output == RecurrenceOutput::over_root;
    const float factor = over_root ? inverse_root(s) : 1.0F;
    each_of_state(p, at, state, [&](std::int64_t i, float& element) { to[i] = element * factor; });
    if (at.column > 0) return;
    if (over_root && thread_index() == 0) p.final_sums[at.of] = s;
    if (p.output != RecurrenceOutput::over_sums) return;
    float* const sums = reads ? p.final_sums : p.carried_sums + behind;
    for (int c = thread_index(); c < p.dk; c += kThreads) sums[at.of * p.dk + c] = shared.z[c];
  }

  static SAMESTATE_DEVICE void run(const Parameters& p, unsigned char* memory) {
    Shared& shared = *reinterpret_cast<Shared*>(memory);
    const Place at = place_of(p);
    const float gamma = retention_decay(p.decays, at.head);
    const bool mine = at.column + 16 * warp_index() < p.dv, with_z = p.output == RecurrenceOutput::over_sums;
    stage_tile(p, at, 0, shared.stages[0]);
    if (p.decays && thread_index() <= kT) {
      const DecayPowers of = decay_powers(gamma, thread_index());
      shared.power[thread_index()] = static_cast<float>(of.power);
      shared.geometric[thread_index()] = static_cast<float>(of.sum);
      if (thread_index() > 0) shared.after[thread_index() - 1] = static_cast<float>(of.power);
    }
    if (with_z) {
      const float* const from = !reads           ? nullptr
                                : at.segment > 0 ? p.carried_sums + (at.segment - 1) * p.states() * p.dk
                                                 : p.sums;
      for (int c = thread_index(); c < kWidth; c += kThreads)
        shared.z[c] = from != nullptr && c < p.dk ? from[at.of * p.dk + c] : 0.0F;
    }
    typename Tiles::State state = {};
    if (const float* const from = state_before(p, at); from != nullptr) {
      const float factor = writes && at.segment > 0 ? 1.0F : state_scale(p, at.of);
      each_of_state(p, at, state, [&](std::int64_t i, float& element) { element = from[i] * factor; });
    }
    float s = 0.0F;
    if (reads && p.output == RecurrenceOutput::over_root) {
      const DecayPowers before = decay_powers(gamma, at.segment * p.segment);
      s = static_cast<float>(before.power * static_cast<double>(p.sums[at.of]) + before.sum);
    }
    int which = 0;
    SAMESTATE_NO_UNROLL
    for (std::int64_t begin = 0; begin < at.tokens; begin += kT) {
      Stage& stage = shared.stages[which];
      copies_wait<0>();
      block_barrier();  // everybody's copies are there, and the tile before this one has been read
      which = 1 - which;
      if (begin + kT < at.tokens) stage_tile(p, at, begin + kT, shared.stages[which]);
      const int n = at.tokens - begin < kT ? static_cast<int>(at.tokens - begin) : kT;
      if (writes && p.decays && thread_index() < kT)
        shared.back[thread_index()] = thread_index() < n ? shared.power[n - 1 - thread_index()] : 0.0F;
      if constexpr (reads && writes) make_scores(p, stage, shared);
      block_barrier();
      if constexpr (writes) {
        if (with_z) add_keys(p, stage, n, shared);
      }
      if (mine) {
        typename Tiles::Columns o;
        if constexpr (reads) {
          Tiles::read_state(state, stage.q, p.dk, o);
          if (p.decays) Tiles::scale_tokens(shared.after, o);
        }
        if constexpr (reads && writes) Tiles::mix_tokens(stage.v, shared.scores, n, n, true, o);
        if constexpr (writes) {
          if (p.decays) {
            Tiles::scale_state(shared.power[n], state);
            Tiles::write_state(stage.k, stage.v, shared.back, n, state);
          } else {
            Tiles::write_state(stage.k, stage.v, n, state);
          }
        }
        if constexpr (reads) store_outputs(p, at, begin, n, s, shared, o, stage);
      }
      if (reads && p.output == RecurrenceOutput::over_root)
        s = fused(shared.power[n], s, shared.geometric[n]);
    }
    if (with_z) block_barrier();
    if constexpr (writes) leave(p, at, s, shared, state);
  }

  /// Adds z of the keys up to the tile's last one; it is read again after the next barrier.
  static SAMESTATE_DEVICE void add_keys(const Parameters& p, const Stage& stage, int n, Shared& shared) {
    for (int c = thread_index(); c < p.dk; c += kThreads) {
      float sum = 0.0F;
      for (int j = 0; j < n; ++j) sum += widen(stage.k[j][c]);
      shared.z[c] += sum;
    }
  }
};

}  // namespace samestate::cuda
