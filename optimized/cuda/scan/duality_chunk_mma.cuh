#pragma once

#include <cstdint>

#include "optimized/cuda/recurrence/segments.cuh"
#include "optimized/cuda/recurrence/state_tiles.cuh"
#include "optimized/cuda/scan/duality.cuh"

/// State space duality in bf16 on tensor cores. x, B and C are multiplied as they were stored; the state and whatever has a factor of
/// fp32 in it are three numbers of bf16 whose sum it is, as in the dendritic layer's chunks.
namespace samestate::cuda {

/// The state before each segment but the first; in place, that of segment n where the one left by n - 1 was.
struct CarryDuality {
  using Parameters = DualityParameters<Bf16>;
  static SAMESTATE_HOST_DEVICE std::int64_t items(const Parameters& p) { return p.states() * p.P * p.N; }
  static SAMESTATE_DEVICE void run(const Parameters& p, std::int64_t item) {
    const float* const decays = p.decays + quotient(item, std::int64_t{p.P} * p.N);
    carry_state(p.carried + item, items(p), p.segments - 1, p.state[item],
                [&](std::int64_t n) { return decays[n * p.states()]; });
  }
};

/// A head's 64 channels through a segment by four warps of 16, which own them: S in the accumulators of a warp. A chunk is a tile of 32
/// tokens, copied to shared memory one ahead. N at most kN. `reads`: tokens read the state; without, it begins from zero and is left.
template <int kN, bool reads>
struct DualityTiles {
  using Parameters = DualityParameters<Bf16>;
  using Tiles = StateTiles<kN>;
  static constexpr int kThreads = 128;
  static constexpr int kResidentBlocks = Tiles::kResidentBlocks;
  static constexpr int kT = kDualityTokens, kP = kDualityColumns;
  static_assert(kT == Tiles::kT && kP == Tiles::kColumns);

  struct alignas(16) Stage {
    float steps[kT][4];  ///< DualityStep
    typename Tiles::Rows C, B;
    typename Tiles::Values x;  ///< afterwards y
  };
  struct alignas(16) Shared {
    Stage stages[2];
    typename Tiles::Scores scores;
    float from_start[kT];  ///< e^{G_i}
    float weight[kT];      ///< Delta_j e^{G_C - G_j}
  };

  struct Place {
    std::int64_t of = 0;  ///< sequence and head
    std::int64_t segment = 0;
    std::int64_t tokens = 0;
    std::int64_t row = 0;   ///< the row of the first token in x, B and C
    std::int64_t step = 0;  ///< that of the first token in the steps
    int h = 0, group = 0, channel = 0;
  };

  static void launch(const Parameters& p, cudaStream_t stream) {
    const std::int64_t segments = reads ? p.segments : p.segments - 1;
    cuda::launch<DualityTiles>(blocks_of(p.states() * p.column_tiles() * segments, 1), sizeof(Shared), p,
                               stream);
  }

  static SAMESTATE_DEVICE Place place_of(const Parameters& p) {
    Place at;
    const std::int64_t rest = quotient(block_index(), p.column_tiles());
    at.segment = quotient(rest, p.states());
    at.of = rest - at.segment * p.states();
    at.channel = static_cast<int>(block_index() - rest * p.column_tiles()) * kP;
    const std::int64_t b = quotient(at.of, p.H), first = at.segment * p.segment;
    at.h = static_cast<int>(at.of - b * p.H);
    at.group = at.h / (p.H / p.G);
    at.tokens = p.tokens - first < p.segment ? p.tokens - first : p.segment;
    at.row = b * p.tokens + first;
    at.step = at.of * p.tokens + first;
    return at;
  }

  /// Stages zeros where there is no token, state or channel.
  static SAMESTATE_DEVICE void stage_tile(const Parameters& p, const Place& at, std::int64_t begin,
                                          Stage& stage) {
    const int t = thread_index() / 4, part = thread_index() % 4;
    const bool exists = begin + t < at.tokens;
    const std::int64_t row = at.row + begin + t;
    const Bf16* const C = p.C + (row * p.G + at.group) * p.N;
    const Bf16* const B = p.B + (row * p.G + at.group) * p.N;
    const Bf16* const x = p.x + (row * p.H + at.h) * p.P + at.channel;
    if ((p.N | p.P) % 8 == 0) {
      SAMESTATE_UNROLL
      for (int c = 8 * part; c < kN; c += 32) {
        if constexpr (reads) stage_piece(&stage.C[t][c], C + c, exists && c < p.N);
        stage_piece(&stage.B[t][c], B + c, exists && c < p.N);
      }
      SAMESTATE_UNROLL
      for (int c = 8 * part; c < kP; c += 32)
        stage_piece(&stage.x[t][c], x + c, exists && at.channel + c < p.P);
    } else {
      if constexpr (reads) stage_elements<kN>(stage.C[t], C, exists ? p.N : 0, part);
      stage_elements<kN>(stage.B[t], B, exists ? p.N : 0, part);
      stage_elements<kP>(stage.x[t], x, exists ? p.P - at.channel : 0, part);
    }
    if (part == 0) {
      float* const step = stage.steps[t];
      if (exists) {
        copy_async_16(step, p.steps + (at.step + begin + t) * 4);
      } else {
        *reinterpret_cast<Vector<float, 4>*>(step) = {};
      }
    }
    copies_commit();
  }

  /// The first warp makes the factors of the `n` tokens of a tile; read them after a barrier.
  static SAMESTATE_DEVICE void make_factors(const Stage& stage, int n, Shared& shared) {
    if (warp_index() > 0) return;
    const int t = lane_index();
    const DualityStep step = DualityStep::at(stage.steps[t]);
    shared.from_start[t] = step.since_start();
    shared.weight[t] = t < n ? step.delta * DualityStep::at(stage.steps[n - 1]).since(step) : 0.0F;
  }

  static SAMESTATE_DEVICE void make_scores(const Parameters& p, const Stage& stage, int n, Shared& shared) {
    // Elements above the diagonal or after the last token are never read.
    if (Tiles::first_key() > Tiles::first_query() || Tiles::first_query() >= n) return;
    Tiles::make_scores(stage.C, stage.B, p.N, shared.scores, [&](int i, int j, float sum) {
      if (j > i || i >= n) return 0.0F;
      const DualityStep step = DualityStep::at(stage.steps[j]);
      return sum * (DualityStep::at(stage.steps[i]).since(step) * step.delta);
    });
  }

  /// This warp's channels of y, by way of those of x, which it alone reads.
  static SAMESTATE_DEVICE void store_rows(const Parameters& p, const Place& at, std::int64_t begin, int n,
                                          typename Tiles::Columns& y, Stage& stage) {
    const float skip = p.skip[at.h];
    warp_barrier();
    Tiles::each_of_columns(y, [&](int t, int column, float element) {
      Bf16& to = stage.x[t][column];
      to = narrow<Bf16>(fused(skip, widen(to), element));
    });
    Tiles::store_columns(stage.x, n, p.P - at.channel, p.P % 8 == 0,
                         [&](int t) { return p.y + ((at.row + begin + t) * p.H + at.h) * p.P + at.channel; });
  }

  /// Calls `visit(element, pair, both)` for the pairs of states of this lane that exist, the second where `both`.
  template <class Visit>
  static SAMESTATE_DEVICE void each_of_state(const Parameters& p, const Place& at,
                                             typename Tiles::State& state, Visit&& visit) {
    const int channel = recomputed(at.channel + 16 * warp_index() + lane_index() / 4);
    const int first = recomputed(lane_index() % 4 * 2);
    SAMESTATE_UNROLL
    for (int k = 0; k < kN / 8; ++k) {
      SAMESTATE_UNROLL
      for (int half = 0; half < 2; ++half) {
        const int n = 8 * k + first, of = channel + 8 * half;
        if (n < p.N && of < p.P)
          visit((at.of * p.P + of) * p.N + n, state[k][2 * half], state[k][2 * half + 1], n + 1 < p.N);
      }
    }
  }
  static SAMESTATE_DEVICE void load_state(const Parameters& p, const Place& at,
                                          typename Tiles::State& state) {
    const float* const from =
        at.segment == 0 ? p.state : p.carried + (at.segment - 1) * p.states() * p.P * p.N;
    each_of_state(p, at, state, [&](std::int64_t i, float& low, float& high, bool both) {
      if (p.N % 2 == 0) {
        const Pair pair = load_pair(from + i);
        low = pair.x, high = pair.y;
      } else {
        low = from[i];
        if (both) high = from[i + 1];
      }
    });
  }
  static SAMESTATE_DEVICE void store_state(const Parameters& p, const Place& at,
                                           typename Tiles::State& state) {
    if (reads && at.segment < p.segments - 1) return;
    float* const to = reads ? p.last_state : p.carried + at.segment * p.states() * p.P * p.N;
    each_of_state(p, at, state, [&](std::int64_t i, float low, float high, bool both) {
      if (p.N % 2 == 0) {
        store_pair(to + i, low, high);
      } else {
        to[i] = low;
        if (both) to[i + 1] = high;
      }
    });
  }

  static SAMESTATE_DEVICE void run(const Parameters& p, unsigned char* memory) {
    Shared& shared = *reinterpret_cast<Shared*>(memory);
    const Place at = place_of(p);
    const bool mine = at.channel + 16 * warp_index() < p.P;
    if (at.tokens > 0) stage_tile(p, at, 0, shared.stages[0]);
    typename Tiles::State state = {};
    if constexpr (reads) load_state(p, at, state);
    DualityStep all{0.0F, 0.0F, 0.0F};
    int which = 0;
    SAMESTATE_NO_UNROLL
    for (std::int64_t begin = 0; begin < at.tokens; begin += kT) {
      Stage& stage = shared.stages[which];
      copies_wait<0>();
      block_barrier();  // everybody's copies are there, and the tile before this one has been read
      which = 1 - which;
      if (begin + kT < at.tokens) stage_tile(p, at, begin + kT, shared.stages[which]);
      const int n = at.tokens - begin < kT ? static_cast<int>(at.tokens - begin) : kT;
      make_factors(stage, n, shared);
      if constexpr (reads) {
        make_scores(p, stage, n, shared);
      } else {
        const DualityStep last = DualityStep::at(stage.steps[n - 1]);
        add(all, last.total, last.rest);
      }
      block_barrier();
      if (!mine) continue;
      typename Tiles::Columns y;
      if constexpr (reads) {
        Tiles::read_state(state, stage.C, p.N, y);
        Tiles::scale_tokens(shared.from_start, y);
        Tiles::mix_tokens(stage.x, shared.scores, n, n, true, y);
      }
      Tiles::scale_state(shared.from_start[n - 1], state);
      Tiles::write_state(stage.B, stage.x, shared.weight, n, state);
      if constexpr (reads) store_rows(p, at, begin, n, y, stage);
    }
    store_state(p, at, state);
    if (!reads && at.channel == 0 && thread_index() == 0)
      p.decays[at.segment * p.states() + at.of] = all.since_start();
  }
};

}  // namespace samestate::cuda
