#pragma once

#include <algorithm>
#include <cstdint>

#include "optimized/call.h"
#include "optimized/cpu/operators/layer_parts.h"
#include "optimized/cpu/operators/tensor.h"

/// The stages that both Mamba mixers have around their scan. Between stages the activations of all sequences
/// are in one block, [B T, width]; a task is a tile of one sequence's tokens.
namespace samestate::cpu::mixer {

inline constexpr std::int64_t kTile = 32;  ///< tokens

/// Rows [begin, begin + n) and columns [first, first + width) of a block.
[[nodiscard]] inline TensorRows<float> part(Block& x, std::int64_t begin, std::int64_t n, std::int64_t first,
                                            std::int64_t width) {
  return {x.row(begin) + first, n, width, x.stride};
}
[[nodiscard]] inline TensorRows<const float> part(const Block& x, std::int64_t begin, std::int64_t n,
                                                  std::int64_t first, std::int64_t width) {
  return {x.row(begin) + first, n, width, x.stride};
}

/// Calls visit(b, begin, n) for every tile of every sequence, on the call's threads.
template <class Visit>
void for_each_tile(const OperatorArguments& call, Visit&& visit) {
  const std::int64_t tiles = (call.tokens + kTile - 1) / kTile;
  for_each_task(call.batch * tiles, call.threads, [&] {
    return [&](std::int64_t task) {
      const std::int64_t begin = task % tiles * kTile;
      visit(task / tiles, begin, std::min(kTile, call.tokens - begin));
    };
  });
}

/// Rows [begin, begin + x.count) of y = x W^T, rounded; `weight` is W^T.
inline void project(const MatrixUnit& unit, const TensorRows<const float>& x, const Block& weight,
                    Format format, Block& y, std::int64_t begin) {
  unit.multiply(x.data, x.stride, weight.row(0), weight.stride, y.row(begin), y.stride, x.count,
                weight.stride, weight.rows);
  round_values(y.row(begin), y.row(begin), x.count * y.stride, format);
}

/// A convolution over the tokens of one sequence, oldest inputs first: `state` [W - 1, C], then `x` [T, C].
struct Convolution {
  const Block& taps;  ///< [W, C]
  const float* bias;  ///< [C]
  TensorRows<const float> state;
  TensorRows<const float> x;

  /// Input i - (W - 1), counted from the first token.
  [[nodiscard]] const float* input(std::int64_t i) const {
    return i < state.count ? state.row(i) : x.row(i - state.count);
  }
  /// y_t = silu(bias + sum_j w_j x_{t-W+1+j}), rounded.
  void token(std::int64_t t, Format format, float* y) const {
    std::copy_n(bias, x.width, y);
    for (std::int64_t j = 0; j < taps.rows; ++j) {
      const float* w = taps.row(j);
      const float* from = input(t + j);
      for (std::int64_t c = 0; c < x.width; ++c) y[c] += w[c] * from[c];
    }
    for (std::int64_t c = 0; c < x.width; ++c) y[c] = layer::silu(y[c]);
    round_values(y, y, x.width, format);
  }
  /// Stores the last W - 1 inputs.
  void store_state(const TensorRows<float>& to, Format format) const {
    for (std::int64_t i = 0; i < to.count; ++i) round_values(input(x.count + i), to.row(i), to.width, format);
  }
};

}  // namespace samestate::cpu::mixer
