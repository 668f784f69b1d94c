#pragma once

#include <string>
#include <utility>

#include "reference/activations.h"
#include "reference/error.h"

/// Depthwise causal convolution over time, a cross-correlation (class C-CONV; EQUATIONS 5.3):
///   y_t = act(b + sum_{j < W} w_j x_{t-W+1+j}), where inputs before the first token come from the state.
namespace samestate {

namespace points {
inline constexpr PointRow kShortConvolutionRows[] = {
    {"y", "The channels, after the convolution and its activation.", PointUse::stored, "output"},
    {"state", "The last W - 1 inputs, which the next call reads.", PointUse::stored, "output"},
};
inline constexpr PointTable short_convolution{"short_convolution", PointTier::equation,
                                              kShortConvolutionRows};
}  // namespace points

/// Output and carried inputs.
template <class Scalar>
struct Convolved {
  Matrix<Scalar> y;      ///< [T, C]
  Matrix<Scalar> state;  ///< [W - 1, C] the last inputs BEFORE the convolution, oldest first (CONV-5)
};

/// The state of a sequence that has not begun: zeros, which act as zero padding. Throws Error for width < 1.
template <class Scalar>
[[nodiscard]] Matrix<Scalar> empty_convolution_state(Index width, Index channels) {
  if (width < 1) throw Error("short_convolution: kernel width " + std::to_string(width) + ", needed >= 1");
  return Matrix<Scalar>::Zero(width - 1, channels);
}

/// x: [T, C], kernel: [C, W], bias: [C] or empty, state: [W - 1, C]. With `activation` the sum passes through
/// silu (CONV-3, DEND-17). T may be anything, including 0 and values below W - 1. Throws Error if the sizes
/// disagree.
template <class Scalar>
[[nodiscard]] Convolved<Scalar> short_convolution(const Matrix<Scalar>& x, const Matrix<Scalar>& kernel,
                                                  const Vector<Scalar>& bias, const Matrix<Scalar>& state,
                                                  bool activation = true) {
  const Index W = kernel.cols();
  const Index C = x.cols();
  if (W < 1 || kernel.rows() != C || state.rows() != W - 1 || state.cols() != C ||
      (bias.size() != 0 && bias.size() != C)) {
    throw Error("short_convolution: x has " + std::to_string(C) + " channels, the kernel is " +
                std::to_string(kernel.rows()) + " x " + std::to_string(W) + ", the state " +
                std::to_string(state.rows()) + " x " + std::to_string(state.cols()) + " (must be W - 1 = " +
                std::to_string(W - 1) + " x C), the bias " + std::to_string(bias.size()));
  }
  Matrix<Scalar> history(W - 1 + x.rows(), C);
  history.topRows(W - 1) = state;
  history.bottomRows(x.rows()) = x;
  Matrix<Scalar> y(x.rows(), C);
  for (Index t = 0; t < x.rows(); ++t) {
    for (Index c = 0; c < C; ++c) {
      Scalar sum = bias.size() != 0 ? bias(c) : Scalar(0);
      for (Index j = 0; j < W; ++j) sum += kernel(c, j) * history(t + j, c);
      y(t, c) = activation ? silu(sum) : sum;
    }
  }
  // A cache in 16 bits rounds inputs that this call may have read unrounded.
  return {stored(std::move(y), points::short_convolution["y"]),
          stored<Scalar>(history.bottomRows(W - 1), points::short_convolution["state"])};
}

}  // namespace samestate
