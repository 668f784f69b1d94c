#pragma once

#include <cstdint>

#include "optimized/cuda/operators/dendritic_chunks.cuh"
#include "optimized/cuda/operators/duality.cuh"
#include "optimized/cuda/operators/row_parts.cuh"

/// State space duality in bf16 on tensor cores. x, B and C are multiplied as they were stored; the state and whatever has a factor of
/// fp32 in it are three numbers of bf16 whose sum it is, as in the dendritic layer's chunks.
namespace samestate::cuda {

/// A head's 64 channels by four warps of 16, which own them: S in the accumulators of a warp for the whole sequence. Tiles are copied
/// to shared memory one ahead. N at most kN.
template <int kN>
struct DualityTiles {
  using Parameters = DualityParameters<Bf16>;
  using Chunks = ChunkBody<kN>;
  static constexpr int kThreads = 128;
  static constexpr int kResidentBlocks = kN <= 128 ? 2 : 1;
  static constexpr int kT = kDualityTokens, kP = kDualityColumns;
  static constexpr int kRow = Chunks::kRow, kChannelRow = kP + 8, kScoreRow = kT + 8;

  struct alignas(16) Stage {
    DualityTokens tokens;
    Bf16 C[kT][kRow];
    Bf16 B[kT][kRow];
    Bf16 x[kT][kChannelRow];  ///< afterwards y
  };
  struct alignas(16) Shared {
    Stage stages[2];
    Bf16 scores[kParts][kT][kScoreRow];
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

  /// 16 x 16 of the scores a warp.
  static SAMESTATE_DEVICE void make_scores(const Parameters& p, const DualityTile& tile, const Stage& stage,
                                           Bf16 (&scores)[kParts][kT][kScoreRow]) {
    const int lane = lane_index(), first = warp_index() / 2 * 16, of_j = warp_index() % 2 * 16;
    // Nobody reads these.
    if ((tile.diagonal() && of_j > first) || first >= tile.count_i()) return;
    float sums[2][4] = {};
    SAMESTATE_UNROLL
    for (int n = 0; n < kN; n += 16) {
      if (n >= p.N) break;
      std::uint32_t c[4], b[4];
      load_matrices<false>(c, &stage.C[first + lane % 16][n + lane / 16 * 8]);
      load_matrices<false>(b, &stage.B[of_j + lane % 8 + lane / 16 * 8][n + lane / 8 % 2 * 8]);
      multiply_bf16(sums[0], c, b[0], b[1]);
      multiply_bf16(sums[1], c, b[2], b[3]);
    }
    SAMESTATE_UNROLL
    for (int k = 0; k < 2; ++k) {
      SAMESTATE_UNROLL
      for (int half = 0; half < 2; ++half) {
        const int row = first + lane / 4 + 8 * half, column = of_j + 8 * k + lane % 4 * 2;
        float x[2];
        SAMESTATE_UNROLL
        for (int e = 0; e < 2; ++e) {
          const float factor = stage.tokens.factor(tile, row, column + e);
          x[e] = factor == 0.0F ? 0.0F : sums[k][2 * half + e] * factor;
        }
        std::uint32_t parts[kParts];
        split_pair(x[0], x[1], parts);
        SAMESTATE_UNROLL
        for (int part = 0; part < kParts; ++part) {
          Bf16* const to = scores[part][row] + column;
          *reinterpret_cast<Vector<Bf16, 2>*>(to) = {{parts[part]}};
        }
      }
    }
  }

  /// y = e^G S C^T of this warp's channels.
  static SAMESTATE_DEVICE void read_state(const Parameters& p, const float (&state)[kN / 8][4],
                                          const Stage& stage, float (&y)[4][4]) {
    SAMESTATE_UNROLL
    for (auto& of_tokens : y) {
      SAMESTATE_UNROLL
      for (float& element : of_tokens) element = 0.0F;
    }
    SAMESTATE_UNROLL
    for (int n = 0; n < kN; n += 16) {
      if (n >= p.N) break;
      std::uint32_t parts[kParts][4];
      Chunks::split_factor(state[n / 8], state[n / 8 + 1], parts);
      Chunks::read_state(&stage.C[0][0], n, parts, y);
    }
    SAMESTATE_UNROLL
    for (int k = 0; k < 4; ++k) {
      const Pair factor = load_pair(stage.tokens.from_start + 8 * k + lane_index() % 4 * 2);
      y[k][0] *= factor.x, y[k][1] *= factor.y, y[k][2] *= factor.x, y[k][3] *= factor.y;
    }
  }

  /// 16 tokens j of this warp's channels, as a left factor.
  static SAMESTATE_DEVICE void load_channels(const Stage& stage, int j, std::uint32_t (&x)[4]) {
    const int lane = lane_index();
    load_matrices<true>(x, &stage.x[j + lane % 8 + lane / 16 * 8][16 * warp_index() + lane / 8 % 2 * 8]);
  }

  static SAMESTATE_DEVICE void mix_tokens(const DualityTile& tile, const Stage& stage,
                                          const Bf16 (&scores)[kParts][kT][kScoreRow], float (&y)[4][4]) {
    const int lane = lane_index();
    SAMESTATE_UNROLL
    for (int j = 0; j < kT; j += 16) {
      if (j >= tile.count_j()) break;
      std::uint32_t x[4];
      load_channels(stage, j, x);
      SAMESTATE_UNROLL
      for (int i = 0; i < kT; i += 16) {
        if ((tile.diagonal() && i < j) || i >= tile.count_i()) continue;
        SAMESTATE_UNROLL
        for (int part = 0; part < kParts; ++part) {
          std::uint32_t of[4];
          load_matrices<false>(of, &scores[part][i + lane % 8 + lane / 16 * 8][j + lane / 8 % 2 * 8]);
          multiply_bf16(y[i / 8], x, of[0], of[1]);
          multiply_bf16(y[i / 8 + 1], x, of[2], of[3]);
        }
      }
    }
  }

  static SAMESTATE_DEVICE void write_state(const DualityTile& tile, const Stage& stage,
                                           float (&state)[kN / 8][4]) {
    if (tile.opens()) {
      const float kept = stage.tokens.from_start[tile.count_i() - 1];
      SAMESTATE_UNROLL
      for (auto& of_channels : state) {
        SAMESTATE_UNROLL
        for (float& element : of_channels) element *= kept;
      }
    }
    SAMESTATE_UNROLL
    for (int j = 0; j < kT; j += 16) {
      if (j >= tile.count_j()) break;
      std::uint32_t x[4], parts[kParts][4];
      load_channels(stage, j, x);
      SAMESTATE_UNROLL
      for (int k = 0; k < 4; ++k) {
        const Pair weight = load_pair(stage.tokens.weight + j + k / 2 * 8 + lane_index() % 4 * 2);
        std::uint32_t pair[kParts];
        split_pair(weight.x * float_of(x[k] << 16), weight.y * float_of(x[k] & 0xffff0000U), pair);
        SAMESTATE_UNROLL
        for (int part = 0; part < kParts; ++part) parts[part][k] = pair[part];
      }
      Chunks::write_state(&stage.B[j][0], parts, state);
    }
  }

  /// This warp's channels of y, by way of those of x, which it alone reads.
  static SAMESTATE_DEVICE void store_rows(const Parameters& p, const DualityPlace& at,
                                          const DualityTile& tile, const float (&y)[4][4], Stage& stage) {
    const int lane = lane_index(), first = 16 * warp_index();
    const float skip = p.skip[at.h];
    warp_barrier();
    SAMESTATE_UNROLL
    for (int k = 0; k < 4; ++k) {
      SAMESTATE_UNROLL
      for (int e = 0; e < 4; ++e) {
        Bf16& to = stage.x[8 * k + lane % 4 * 2 + e % 2][first + lane / 4 + e / 2 * 8];
        to = narrow<Bf16>(fused(skip, widen(to), y[k][e]));
      }
    }
    warp_barrier();
    SAMESTATE_UNROLL
    for (int half = 0; half < 2; ++half) {
      const int t = lane / 2 + 16 * half, column = first + lane % 2 * 8;
      const int exist = p.P - at.first - column;
      if (t >= tile.count_i() || exist <= 0) continue;
      Bf16* const to = p.y + ((at.b * p.tokens + tile.i + t) * p.H + at.h) * p.P + at.first + column;
      const Bf16* const from = stage.x[t] + column;
      store_eight(to, from, exist, p.P % 8 == 0);
    }
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
      if (now.opens()) read_state(p, state, stage, y);
      mix_tokens(now, stage, shared.scores, y);
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
