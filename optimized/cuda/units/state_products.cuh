#pragma once

#include <cstdint>

#include "optimized/cuda/units/bf16_parts.cuh"

/// Products of a state in the accumulators of warps, S^T, with rows of keys or queries in shared memory, by mma.sync: what the chunked
/// forms of recurrences have in common, with a delta rule or without.
namespace samestate::cuda {

inline constexpr int kStateTokens = 32;  ///< tokens that tensor cores take at once

/// A warp has 16 columns of the state, as accumulators of m16n8k16 for each eight of its kWidth keys. In the products four sums take
/// turns, since one has to wait for the product before.
template <int kWidth>
struct StateProducts {
  static_assert(kWidth % 32 == 0);
  static constexpr int kRow = kWidth + 8;  ///< elements: eight rows lie in different banks

  /// The left factor of 16 columns k, in parts, from accumulators of two neighbouring tiles.
  static SAMESTATE_DEVICE void split_factor(const float (&low)[4], const float (&high)[4],
                                            std::uint32_t (&parts)[kParts][4]) {
    SAMESTATE_UNROLL
    for (int i = 0; i < 4; ++i) {
      const float(&of)[4] = i < 2 ? low : high;
      std::uint32_t pair[kParts];
      split_pair(of[i % 2 * 2], of[i % 2 * 2 + 1], pair);
      SAMESTATE_UNROLL
      for (int part = 0; part < kParts; ++part) parts[part][i] = pair[part];
    }
  }

  /// x += S^T K^T: 16 value columns of all tokens.
  static SAMESTATE_DEVICE void read_state(const Bf16* rows, int c, const std::uint32_t (&parts)[kParts][4],
                                          float (&x)[4][4]) {
    const int lane = lane_index();
    std::uint32_t of[2][4];
    SAMESTATE_UNROLL
    for (int j = 0; j < 2; ++j)
      load_matrices<false>(of[j], rows + (16 * j + lane % 8 + lane / 16 * 8) * kRow + c + lane / 8 % 2 * 8);
    SAMESTATE_UNROLL
    for (int part = 0; part < kParts; ++part) {
      SAMESTATE_UNROLL
      for (int j = 0; j < 4; ++j)
        multiply_bf16(x[j], parts[part], of[j / 2][j % 2 * 2], of[j / 2][j % 2 * 2 + 1]);
    }
  }

  /// Computes S^T += x K for 16 tokens, whose rows of K begin at `rows`; x consists of n parts.
  template <int n>
  static SAMESTATE_DEVICE void write_state(const Bf16* rows, const std::uint32_t (&parts)[n][4],
                                           float (&state)[kWidth / 8][4]) {
    const int lane = lane_index();
    SAMESTATE_UNROLL
    for (int c = 0; c < kWidth; c += 32) {
      std::uint32_t k[2][4];
      SAMESTATE_UNROLL
      for (int j = 0; j < 2; ++j)
        load_matrices<true>(k[j], rows + lane % 16 * kRow + c + 16 * j + lane / 16 * 8);
      SAMESTATE_UNROLL
      for (int part = 0; part < n; ++part) {
        SAMESTATE_UNROLL
        for (int j = 0; j < 4; ++j)
          multiply_bf16(state[c / 8 + j], parts[part], k[j / 2][j % 2 * 2], k[j / 2][j % 2 * 2 + 1]);
      }
    }
  }
};

}  // namespace samestate::cuda
