#pragma once

#include <cstdint>

#include "optimized/cuda/delta/token_fma_list.cuh"
#include "optimized/cuda/units/row_parts.cuh"

/// Parts that both kinds of tiles of the rule on lists have in common, those of 32 tokens by mma.sync (chunk_mma_list_tiles.cuh) and those of
/// 64 by wgmma (chunk_wgmma_list_tiles.cuh): chunks of the lists, rows of their tokens, sums of their gates, the inverse of a square of A.
namespace samestate::cuda {

template <int kTokens>
struct ListChunks {
  RuleParameters<Bf16> rule;

  /// Chunks of all lists of a sequence's head: no more than that, however its tokens choose.
  [[nodiscard]] SAMESTATE_HOST_DEVICE std::int64_t capacity() const {
    const DendriticShape& s = rule.shape;
    return s.tokens * s.slots() / kTokens + s.branches();
  }
  [[nodiscard]] SAMESTATE_HOST_DEVICE std::int64_t tile_count() const {
    return rule.shape.batch * rule.shape.heads * capacity() * rule.shape.windows;
  }
};

/// Returns true if all rows consist of pieces of 16 bytes.
SAMESTATE_DEVICE bool in_pieces(const DendriticShape& s) {
  return (s.channels | s.stride | s.width | s.values) % 8 == 0;
}
/// The stride of a row of q or k in shared memory, in elements: eight rows lie in different banks.
SAMESTATE_HOST_DEVICE inline int list_row_stride(const DendriticShape& s) {
  return (s.width + 15) / 16 * 16 + 8;
}

/// Eight columns of a row of q and of k from element `at` on, of which `exist` exist, then zeros; there after copies_wait().
SAMESTATE_DEVICE void stage_keys(const RuleParameters<Bf16>& r, std::int64_t at, int exist, Bf16* q,
                                 Bf16* k) {
  if (in_pieces(r.shape)) {
    stage_piece(q, r.q + at, exist > 0);
    stage_piece(k, r.k + at, exist > 0);
  } else {
    for (int i = 0; i < 8; ++i) {
      q[i] = i < exist ? r.q[at + i] : Bf16{};
      k[i] = i < exist ? r.k[at + i] : Bf16{};
    }
  }
}

/// total + rest += before + rest_before
SAMESTATE_DEVICE void add_to_sum(float& total, float& rest, float before, float rest_before) {
  const float sum = total + before, added = sum - total;
  rest += rest_before + ((total - (sum - added)) + (before - added));
  total = sum;
}
/// Computes G of a warp's tokens, one token per lane, from g in `total`. It is kept as total and rest,
/// because the sum between two tokens is small in comparison with the sum before them.
SAMESTATE_DEVICE void sum_gates(float& total, float& rest) {
  const int lane = lane_index();
  SAMESTATE_UNROLL
  for (int step = 1; step < 32; step *= 2) {
    const float before = shuffle(total, lane >= step ? lane - step : lane);
    const float rest_before = shuffle(rest, lane >= step ? lane - step : lane);
    if (lane >= step) add_to_sum(total, rest, before, rest_before);
  }
}

inline constexpr int kListSquare = 32;  ///< rows of A that a warp inverts at once

/// x <- the lane's column of (I + A)^-1, by forward substitution; `four(i, j)`: elements j to j + 3 of A's row i; `made(i, x[i])` as soon
/// as it is known.
template <class Four, class Made>
SAMESTATE_DEVICE void substitute(float (&x)[kListSquare], Four&& four, Made&& made) {
  const int column = lane_index();
  SAMESTATE_UNROLL
  for (int i = 0; i < kListSquare; ++i) {
    float early = i == column ? 1.0F : 0.0F, late = 0.0F;
    SAMESTATE_UNROLL
    for (int j = 0; j < kListSquare; j += 4) {
      if (j >= i) break;
      const Quad a = four(i, j);
      early = fused(-a.x, x[j], early);
      if (j + 1 < i) late = fused(-a.y, x[j + 1], late);
      if (j + 2 < i) early = fused(-a.z, x[j + 2], early);
      if (j + 3 < i) late = fused(-a.w, x[j + 3], late);
    }
    x[i] = early + late;
    made(i, x[i]);
  }
}

}  // namespace samestate::cuda
