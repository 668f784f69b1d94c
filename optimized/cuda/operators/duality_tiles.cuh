#pragma once

#include <cstdint>

#include "optimized/cuda/operators/duality.cuh"
#include "optimized/cuda/operators/state_tiles.cuh"

/// State space duality in bf16 on tensor cores. x, B and C are multiplied as they were stored; the state and whatever has a factor of
/// fp32 in it are three numbers of bf16 whose sum it is, as in the dendritic layer's chunks.
namespace samestate::cuda {

/// A head's 64 channels by four warps of 16, which own them: S in the accumulators of a warp for the whole sequence. Tiles are copied
/// to shared memory one ahead. N at most kN.
template <int kN>
struct DualityTiles {
  using Parameters = DualityParameters<Bf16>;
  using Tiles = StateTiles<kN>;
  static constexpr int kThreads = 128;
  static constexpr int kResidentBlocks = kN <= 128 ? 2 : 1;
  static constexpr int kT = kDualityTokens, kP = kDualityColumns;
  static_assert(kT == Tiles::kT && kP == Tiles::kColumns);

  struct alignas(16) Stage {
    DualityTokens tokens;
    typename Tiles::Rows C, B;
    typename Tiles::Values x;  ///< afterwards y
  };
  struct alignas(16) Shared {
    Stage stages[2];
    typename Tiles::Scores scores;
  };

  static SAMESTATE_DEVICE void stage_tile(const Parameters& p, const DualityPlace& at,
                                          const DualityTile& tile, Stage& stage) {
    const int t = thread_index() / 4, part = thread_index() % 4;
    const bool is_i = t < tile.count_i(), is_j = t < tile.count_j();
    const std::int64_t i = at.b * p.tokens + tile.i + t, j = at.b * p.tokens + tile.j + t;
    const Bf16* const C = p.C + (i * p.G + at.group) * p.N;
    const Bf16* const B = p.B + (j * p.G + at.group) * p.N;
    const Bf16* const x = p.x + (j * p.H + at.h) * p.P + at.first;
    if ((p.N | p.P) % 8 == 0) {
      SAMESTATE_UNROLL
      for (int c = 8 * part; c < kN; c += 32) {
        stage_piece(&stage.C[t][c], C + c, is_i && c < p.N);
        stage_piece(&stage.B[t][c], B + c, is_j && c < p.N);
      }
      SAMESTATE_UNROLL
      for (int c = 8 * part; c < kP; c += 32) stage_piece(&stage.x[t][c], x + c, is_j && at.first + c < p.P);
    } else {
      stage_elements<kN>(stage.C[t], C, is_i ? p.N : 0, part);
      stage_elements<kN>(stage.B[t], B, is_j ? p.N : 0, part);
      stage_elements<kP>(stage.x[t], x, is_j ? p.P - at.first : 0, part);
    }
    stage.tokens.stage(p, at, tile);
    copies_commit();
  }

  /// The scores of a pair of tiles; of those behind the diagonal or the last token nobody reads any.
  static SAMESTATE_DEVICE void make_scores(const Parameters& p, const DualityTile& tile, const Stage& stage,
                                           typename Tiles::Scores& scores) {
    if ((tile.diagonal() && Tiles::first_key() > Tiles::first_query()) ||
        Tiles::first_query() >= tile.count_i())
      return;
    Tiles::make_scores(stage.C, stage.B, p.N, scores, [&](int row, int column, float sum) {
      const float factor = stage.tokens.factor(tile, row, column);
      return factor == 0.0F ? 0.0F : sum * factor;
    });
  }

  static SAMESTATE_DEVICE void write_state(const DualityTile& tile, const Stage& stage,
                                           typename Tiles::State& state) {
    if (tile.opens()) Tiles::scale_state(stage.tokens.from_start[tile.count_i() - 1], state);
    Tiles::write_state(stage.B, stage.x, stage.tokens.weight, tile.count_j(), state);
  }

  /// This warp's channels of y, by way of those of x, which it alone reads.
  static SAMESTATE_DEVICE void store_rows(const Parameters& p, const DualityPlace& at,
                                          const DualityTile& tile, typename Tiles::Columns& y, Stage& stage) {
    const float skip = p.skip[at.h];
    warp_barrier();
    Tiles::each_of_columns(y, [&](int t, int column, float element) {
      Bf16& to = stage.x[t][column];
      to = narrow<Bf16>(fused(skip, widen(to), element));
    });
    Tiles::store_columns(stage.x, tile.count_i(), p.P - at.first, p.P % 8 == 0, [&](int t) {
      return p.y + ((at.b * p.tokens + tile.i + t) * p.H + at.h) * p.P + at.first;
    });
  }

  /// Calls `visit(element, pair, both)` for the pairs of states of this lane that exist, the second where `both`.
  template <class Visit>
  static SAMESTATE_DEVICE void each_of_state(const Parameters& p, const DualityPlace& at,
                                             float (&state)[kN / 8][4], Visit&& visit) {
    const std::int64_t head = (at.b * p.H + recomputed(at.h)) * p.P;
    const int channel = recomputed(at.first + 16 * warp_index() + lane_index() / 4);
    const int first = recomputed(lane_index() % 4 * 2);
    SAMESTATE_UNROLL
    for (int k = 0; k < kN / 8; ++k) {
      SAMESTATE_UNROLL
      for (int half = 0; half < 2; ++half) {
        const int n = 8 * k + first, of = channel + 8 * half;
        if (n < p.N && of < p.P)
          visit((head + of) * p.N + n, state[k][2 * half], state[k][2 * half + 1], n + 1 < p.N);
      }
    }
  }

  static SAMESTATE_DEVICE void run(const Parameters& p, unsigned char* memory) {
    Shared& shared = *reinterpret_cast<Shared*>(memory);
    const DualityPlace at = DualityPlace::of(p);
    const bool mine = at.first + 16 * warp_index() < p.P, pairs = p.N % 2 == 0;
    DualityTile tile = DualityTile::first(p);
    if (tile.exists(p)) stage_tile(p, at, tile, shared.stages[0]);
    float state[kN / 8][4] = {}, y[4][4] = {};
    each_of_state(p, at, state, [&](std::int64_t i, float& low, float& high, bool both) {
      if (pairs) {
        const Pair from = load_pair(p.state + i);
        low = from.x, high = from.y;
      } else {
        low = p.state[i];
        if (both) high = p.state[i + 1];
      }
    });
    int which = 0;
    SAMESTATE_NO_UNROLL
    while (tile.exists(p)) {
      Stage& stage = shared.stages[which];
      copies_wait<0>();
      block_barrier();  // everybody's copies are there, and the tile before this one has been read
      const DualityTile now = tile;
      tile.advance(p);
      which = 1 - which;
      if (tile.exists(p)) stage_tile(p, at, tile, shared.stages[which]);
      stage.tokens.make_factors(now);
      make_scores(p, now, stage, shared.scores);
      block_barrier();
      if (!mine) continue;
      if (now.opens()) {
        Tiles::read_state(state, stage.C, p.N, y);
        Tiles::scale_tokens(stage.tokens.from_start, y);
      }
      Tiles::mix_tokens(stage.x, shared.scores, now.count_i(), now.count_j(), now.diagonal(), y);
      if (now.writes()) write_state(now, stage, state);
      if (now.diagonal()) store_rows(p, at, now, y, stage);
    }
    each_of_state(p, at, state, [&](std::int64_t i, float& low, float& high, bool both) {
      if (pairs) {
        store_pair(p.last_state + i, low, high);
      } else {
        p.last_state[i] = low;
        if (both) p.last_state[i + 1] = high;
      }
    });
  }
};

}  // namespace samestate::cuda
