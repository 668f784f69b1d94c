#pragma once

#include <cmath>
#include <cstdint>

#include "optimized/cuda/pointwise/pointwise.cuh"
#include "optimized/cuda/products/product.cuh"
#include "optimized/cuda/recurrence/segments.cuh"
#include "optimized/cuda/units/row_parts.cuh"
#include "optimized/cuda/units/warp_extremes.cuh"

/// Recurrences S_t = gamma S_{t-1} + k_t v_t^T, o_t = S_t^T q_t of a matrix a head, gamma constant (1 or RetNet's). Sums are fp32. A
/// warp holds the columns of a tile and goes through the tokens of a segment; sequences that give too few warps are cut into
/// segments, whose own states are then summed up to the state before each.
namespace samestate::cuda {

inline constexpr int kRecurrenceColumns = 64;  ///< columns of a state that one block takes

/// How the output follows from S_t^T q_t.
enum class RecurrenceOutput {
  over_sums,  ///< over z_t . q_t, z_t = z_{t-1} + k_t
  over_root,  ///< over the root of s_t = gamma s_{t-1} + 1, by which states that come and go are divided too
  raw,        ///< nothing, in fp32
  rounded     ///< nothing but the contract's rounding
};

template <class Operand>
struct RecurrenceParameters {
  const Operand* q = nullptr;  ///< [batch, tokens, heads, dk], and k
  const Operand* k = nullptr;
  const Operand* v = nullptr;     ///< [batch, tokens, heads, dv]
  const float* state = nullptr;   ///< [batch, heads, dk, dv]; null means zeros
  const float* sums = nullptr;    ///< z [batch, heads, dk], or s [batch, heads]
  float* carried = nullptr;       ///< [segments, batch, heads, dk, dv] of scratch
  float* carried_sums = nullptr;  ///< [segments, batch, heads, dk], of z
  Operand* o = nullptr;           ///< [batch, tokens, heads, dv]
  float* raw = nullptr;           ///< the same
  float* final_state = nullptr;   ///< as state; null if it is not wanted
  float* final_sums = nullptr;    ///< as sums
  std::int64_t batch = 0;
  std::int64_t tokens = 0;
  std::int64_t segment = 1;   ///< tokens
  std::int64_t segments = 1;  ///< at least 1
  int heads = 1;
  int dk = 1;
  int dv = 1;
  bool decays = false;  ///< true for RetNet's gammas
  bool whole = false;   ///< every token reads the state after the last one
  RecurrenceOutput output = RecurrenceOutput::rounded;
  int warps = 1;       ///< warps of a block; all have the same columns
  int quads = 4;       ///< groups of four rows that a lane has
  int row_lanes = 1;   ///< lanes of a warp along rows of the state; the others are along columns, 4 per lane
  int stage = 16;      ///< tokens in shared memory at a time, twice
  bool tiled = false;  ///< on tensor cores, by chunk_mma.cuh

  [[nodiscard]] SAMESTATE_HOST_DEVICE std::int64_t states() const { return batch * heads; }
  [[nodiscard]] SAMESTATE_HOST_DEVICE int rows() const { return 4 * quads * warps * row_lanes; }
  [[nodiscard]] SAMESTATE_HOST_DEVICE int columns() const { return 32 / row_lanes * 4; }
  [[nodiscard]] SAMESTATE_HOST_DEVICE int tiles() const { return (dv + columns() - 1) / columns(); }
  /// Elements of a stage.
  [[nodiscard]] SAMESTATE_HOST_DEVICE int staged() const { return stage * (2 * rows() + columns()); }
};

/// gamma of a head: 1 - 2^(-5-h), a number of fp32 for the heads that there are.
SAMESTATE_DEVICE float retention_decay(bool decays, int head) {
  return decays ? 1.0F - float_of(static_cast<std::uint32_t>(122 - head) << 23) : 1.0F;
}

/// gamma^n and 1 + gamma + ... + gamma^(n-1). In fp64: squaring would double a rounding at every step.
struct DecayPowers {
  double power = 1.0;
  double sum = 0.0;
};
SAMESTATE_DEVICE DecayPowers decay_powers(float gamma, std::int64_t n) {
  DecayPowers of;
  if (gamma == 1.0F) return {1.0, static_cast<double>(n)};
  int bits = 0;
  while ((n >> bits) > 0) ++bits;
  for (int bit = bits - 1; bit >= 0; --bit) {
    of.sum *= 1.0 + of.power;
    of.power *= of.power;
    if (((n >> bit) & 1) != 0) {
      of.sum = of.sum * static_cast<double>(gamma) + 1.0;
      of.power *= static_cast<double>(gamma);
    }
  }
  return of;
}

/// Returns the factor by which a state is multiplied when it arrives: the root of s, or 1 if no token
/// follows.
template <class Operand>
SAMESTATE_DEVICE float state_scale(const RecurrenceParameters<Operand>& p, std::int64_t of) {
  if (p.output != RecurrenceOutput::over_root || p.tokens == 0) return 1.0F;
  const float s = p.sums[of];
  return s > 0.0F ? s * inverse_root(s) : 0.0F;
}

/// Computes the state before each segment but the first, from the states that the segments leave by
/// themselves; in place, so that the state of segment n replaces the one that n - 1 left. If the parameters
/// say `whole`, the state after all tokens goes to final_state.
template <class Operand>
struct CarryStates {
  using Parameters = RecurrenceParameters<Operand>;
  static SAMESTATE_HOST_DEVICE std::int64_t items(const Parameters& p) {
    return p.states() * p.dk * (p.dv + (p.carried_sums != nullptr ? 1 : 0));
  }
  static SAMESTATE_DEVICE void run(const Parameters& p, std::int64_t item) {
    const std::int64_t elements = p.states() * p.dk * p.dv;
    if (item >= elements) {
      carry_state(p.carried_sums + item - elements, p.states() * p.dk, p.segments - 1,
                  p.sums[item - elements], [](std::int64_t) { return 1.0F; });
      return;
    }
    const std::int64_t of = quotient(item, std::int64_t{p.dk} * p.dv);
    const float gamma = retention_decay(p.decays, static_cast<int>(of % p.heads));
    const float before = p.state == nullptr ? 0.0F : p.state[item] * state_scale(p, of);
    const auto decay = static_cast<float>(decay_powers(gamma, p.segment).power);
    const float last = carry_state(p.carried + item, elements, p.whole ? p.segments : p.segments - 1, before,
                                   [&](std::int64_t) { return decay; });
    if (p.whole) p.final_state[item] = last;
  }
};

template <class Operand>
struct RowScaleParameters {
  const float* x = nullptr;  ///< [rows, width]
  Operand* y = nullptr;
  std::int64_t rows = 0;
  int width = 1;
};

/// The power of 2 that takes the number of these bits, without a sign, to [1, 2), one from 2^127 on to [2, 4); 1 of one below
/// 2^-126, an infinity and NaN.
SAMESTATE_DEVICE float power_to_one(std::uint32_t bits) {
  const std::uint32_t exponent = bits >> 23;
  if (exponent == 0 || exponent == 255) return 1.0F;
  return float_of((exponent > 252 ? 1 : 254 - exponent) << 23);
}

/// RetNet's norm of a head without epsilon: a row over its root mean square. A row a warp, four columns a lane.
template <class Operand>
struct ScaleRows {
  using Parameters = RowScaleParameters<Operand>;
  static SAMESTATE_HOST_DEVICE std::int64_t items(const Parameters& p) { return p.rows; }
  static SAMESTATE_DEVICE void run(const Parameters& p, std::int64_t row) {
    constexpr int kLoads = 4;  // 512 columns
    const float* const from = p.x + row * p.width;
    Operand* const to = p.y + row * p.width;
    const bool vector = p.width % 4 == 0;
    float x[kLoads][4] = {};
    std::uint32_t largest = 0;
    SAMESTATE_UNROLL
    for (int i = 0; i < kLoads; ++i) {
      const int column = 128 * i + 4 * lane_index();
      if (128 * i >= p.width) break;
      const auto quad = load_part<float, 4>(from, column, p.width, vector);
      SAMESTATE_UNROLL
      for (int e = 0; e < 4; ++e) {
        x[i][e] = element(quad, e);
        const std::uint32_t size = bits_of(x[i][e]) & 0x7fffffffU;
        largest = size > largest ? size : largest;
      }
    }
    // Rows are not divided before (EQ-11), so that their squares may be no fp32 numbers: a power of 2 takes the largest to [1, 2).
    const float scale = power_to_one(warp_largest(largest));
    float squares = 0.0F;
    SAMESTATE_UNROLL
    for (int i = 0; i < kLoads; ++i) {
      SAMESTATE_UNROLL
      for (float& e : x[i]) {
        e *= scale;
        squares = fused(e, e, squares);
      }
    }
    const float factor = inverse_root(warp_sum(squares) / static_cast<float>(p.width));
    SAMESTATE_UNROLL
    for (int i = 0; i < kLoads; ++i) {
      if (128 * i >= p.width) break;
      SAMESTATE_UNROLL
      for (float& e : x[i]) e *= factor;
      store_part(to, 128 * i + 4 * lane_index(), p.width, vector, x[i]);
    }
  }
};

}  // namespace samestate::cuda
