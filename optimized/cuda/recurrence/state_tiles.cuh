#pragma once

#include <cstdint>
#include <type_traits>

#include "optimized/cuda/units/row_parts.cuh"
#include "optimized/cuda/units/state_products.cuh"

/// Products of a tile of 32 tokens with a state in the accumulators of four warps, 64 of its columns: what recurrences without a delta
/// rule have in common. Rows of a state ("keys", at most kWidth) are read by queries and written by keys; columns are a warp's 16.
namespace samestate::cuda {

template <int kWidth>
struct StateTiles {
  using Products = StateProducts<kWidth>;
  static constexpr int kT = kStateTokens, kColumns = 64;
  static constexpr int kResidentBlocks = kWidth <= 64 ? 4 : kWidth <= 128 ? 3 : 1;
  static constexpr int kRow = Products::kRow, kColumnRow = kColumns + 8, kScoreRow = kT + 8;
  using State = float[kWidth / 8][4];  ///< columns lane / 4 and 8 on of keys 8 i + 2 (lane % 4) and the next
  using Columns = float[4][4];         ///< the same of tokens 8 i + 2 (lane % 4) and the next
  using Rows = Bf16[kT][kRow];
  using Values = Bf16[kT][kColumnRow];
  using Scores = Bf16[kParts][kT][kScoreRow];

  /// The first token of this warp's 16 queries and of its 16 keys in `make_scores`.
  static SAMESTATE_DEVICE int first_query() { return warp_index() / 2 * 16; }
  static SAMESTATE_DEVICE int first_key() { return warp_index() % 2 * 16; }

  /// 16 x 16 of the scores a warp, by `factor(query, key, sum)` of their sums over `width` channels.
  template <class Factor>
  static SAMESTATE_DEVICE void make_scores(const Rows& queries, const Rows& keys, int width, Scores& scores,
                                           Factor&& factor) {
    const int lane = lane_index(), first = first_query(), of_j = first_key();
    float sums[2][4] = {};
    SAMESTATE_UNROLL
    for (int n = 0; n < kWidth; n += 16) {
      if (n >= width) break;
      std::uint32_t c[4], b[4];
      load_matrices<false>(c, &queries[first + lane % 16][n + lane / 16 * 8]);
      load_matrices<false>(b, &keys[of_j + lane % 8 + lane / 16 * 8][n + lane / 8 % 2 * 8]);
      multiply_bf16(sums[0], c, b[0], b[1]);
      multiply_bf16(sums[1], c, b[2], b[3]);
    }
    SAMESTATE_UNROLL
    for (int k = 0; k < 2; ++k) {
      SAMESTATE_UNROLL
      for (int half = 0; half < 2; ++half) {
        const int row = first + lane / 4 + 8 * half, column = of_j + 8 * k + lane % 4 * 2;
        std::uint32_t parts[kParts];
        const float x = factor(row, column, sums[k][2 * half]);
        const float y = factor(row, column + 1, sums[k][2 * half + 1]);
        split_pair(x, y, parts);
        SAMESTATE_UNROLL
        for (int part = 0; part < kParts; ++part) {
          Bf16* const to = scores[part][row] + column;
          *reinterpret_cast<Vector<Bf16, 2>*>(to) = {{parts[part]}};
        }
      }
    }
  }

  /// x = S^T C^T of this warp's columns, over `width` keys.
  static SAMESTATE_DEVICE void read_state(const State& state, const Rows& queries, int width, Columns& x) {
    SAMESTATE_UNROLL
    for (auto& of_tokens : x) {
      SAMESTATE_UNROLL
      for (float& element : of_tokens) element = 0.0F;
    }
    SAMESTATE_UNROLL
    for (int n = 0; n < kWidth; n += 16) {
      if (n >= width) break;
      std::uint32_t parts[kParts][4];
      Products::split_factor(state[n / 8], state[n / 8 + 1], parts);
      Products::read_state(&queries[0][0], n, parts, x);
    }
  }

  /// x of every token by its factor.
  static SAMESTATE_DEVICE void scale_tokens(const float* factors, Columns& x) {
    SAMESTATE_UNROLL
    for (int k = 0; k < 4; ++k) {
      const Pair factor = load_pair(factors + 8 * k + lane_index() % 4 * 2);
      x[k][0] *= factor.x, x[k][1] *= factor.y, x[k][2] *= factor.x, x[k][3] *= factor.y;
    }
  }

  /// 16 tokens from j on of this warp's columns, as a left factor.
  static SAMESTATE_DEVICE void load_columns(const Values& values, int j, std::uint32_t (&x)[4]) {
    const int lane = lane_index();
    load_matrices<true>(x, &values[j + lane % 8 + lane / 16 * 8][16 * warp_index() + lane / 8 % 2 * 8]);
  }

  /// x += values by the scores, of `count_j` keys for `count_i` queries; where `diagonal`, of no later keys.
  static SAMESTATE_DEVICE void mix_tokens(const Values& values, const Scores& scores, int count_i,
                                          int count_j, bool diagonal, Columns& x) {
    const int lane = lane_index();
    SAMESTATE_UNROLL
    for (int j = 0; j < kT; j += 16) {
      if (j >= count_j) break;
      std::uint32_t of_j[4];
      load_columns(values, j, of_j);
      SAMESTATE_UNROLL
      for (int i = 0; i < kT; i += 16) {
        if ((diagonal && i < j) || i >= count_i) continue;
        SAMESTATE_UNROLL
        for (int part = 0; part < kParts; ++part) {
          std::uint32_t of[4];
          load_matrices<false>(of, &scores[part][i + lane % 8 + lane / 16 * 8][j + lane / 8 % 2 * 8]);
          multiply_bf16(x[i / 8], of_j, of[0], of[1]);
          multiply_bf16(x[i / 8 + 1], of_j, of[2], of[3]);
        }
      }
    }
  }

  static SAMESTATE_DEVICE void scale_state(float by, State& state) {
    SAMESTATE_UNROLL
    for (auto& of_keys : state) {
      SAMESTATE_UNROLL
      for (float& element : of_keys) element *= by;
    }
  }

  /// S^T += the values of `count` tokens, each by its weight, times their keys.
  static SAMESTATE_DEVICE void write_state(const Rows& keys, const Values& values, const float* weights,
                                           int count, State& state) {
    SAMESTATE_UNROLL
    for (int j = 0; j < kT; j += 16) {
      if (j >= count) break;
      std::uint32_t x[4], parts[kParts][4];
      load_columns(values, j, x);
      SAMESTATE_UNROLL
      for (int k = 0; k < 4; ++k) {
        const Pair weight = load_pair(weights + j + k / 2 * 8 + lane_index() % 4 * 2);
        std::uint32_t pair[kParts];
        split_pair(weight.x * float_of(x[k] << 16), weight.y * float_of(x[k] & 0xffff0000U), pair);
        SAMESTATE_UNROLL
        for (int part = 0; part < kParts; ++part) parts[part][k] = pair[part];
      }
      Products::write_state(&keys[j][0], parts, state);
    }
  }

  /// Does the same for weights of 1, where a value is its own only part.
  static SAMESTATE_DEVICE void write_state(const Rows& keys, const Values& values, int count, State& state) {
    SAMESTATE_UNROLL
    for (int j = 0; j < kT; j += 16) {
      if (j >= count) break;
      std::uint32_t x[1][4];
      load_columns(values, j, x[0]);
      Products::write_state(&keys[j][0], x, state);
    }
  }

  /// `visit(token, column, element)` for this warp's columns of x, where a column is one of the block's.
  template <class Visit>
  static SAMESTATE_DEVICE void each_of_columns(Columns& x, Visit&& visit) {
    const int token = lane_index() % 4 * 2, column = 16 * warp_index() + lane_index() / 4;
    SAMESTATE_UNROLL
    for (int k = 0; k < 4; ++k) {
      SAMESTATE_UNROLL
      for (int e = 0; e < 4; ++e) visit(8 * k + token + e % 2, column + e / 2 * 8, x[k][e]);
    }
  }

  /// `visit(key, column, element)` for this lane's elements of the state, existing or not.
  template <class Visit>
  static SAMESTATE_DEVICE void each_of_state(State& state, Visit&& visit) {
    // Computed when they are needed: from the load to the store they would take as many registers.
    const int key = recomputed(lane_index() % 4 * 2);
    const int column = recomputed(16 * warp_index() + lane_index() / 4);
    SAMESTATE_UNROLL
    for (int tile = 0; tile < kWidth / 8; ++tile) {
      SAMESTATE_UNROLL
      for (int e = 0; e < 4; ++e) visit(8 * tile + key + e % 2, column + e / 2 * 8, state[tile][e]);
    }
  }

  /// Rows of tokens from shared memory by this warp, its 16 columns of each: `row(t)` is where the block's first column goes.
  template <class Row>
  static SAMESTATE_DEVICE void store_columns(const Values& values, int count, int columns, bool vector,
                                             Row&& row) {
    warp_barrier();
    SAMESTATE_UNROLL
    for (int half = 0; half < 2; ++half) {
      const int t = lane_index() / 2 + 16 * half, column = 16 * warp_index() + lane_index() % 2 * 8;
      const int exist = columns - column;
      if (t < count && exist > 0) store_eight(row(t) + column, values[t] + column, exist, vector);
    }
  }
};

inline constexpr int kWidestTile = 256;

/// Calls `make(width)` with the narrowest compiled width that holds this many keys, as an integral constant.
template <class Make>
decltype(auto) tile_width(int keys, Make&& make) {
  if (keys <= 64) return make(std::integral_constant<int, 64>{});
  if (keys <= 128) return make(std::integral_constant<int, 128>{});
  return make(std::integral_constant<int, kWidestTile>{});
}

/// Blocks of that width on a multiprocessor.
[[nodiscard]] inline std::int64_t resident_of_width(int keys) {
  return tile_width(keys, [](auto width) { return std::int64_t{StateTiles<width>::kResidentBlocks}; });
}

}  // namespace samestate::cuda
