#pragma once

#include <string>

#include "reference/backward/gates.h"
#include "reference/short_convolution.h"

/// The backward pass of the short convolution, with h = [state, x] of W - 1 + T rows, p_t = b + sum_j w_j
/// h_{t+j} and y = silu(p) or p: dp = dy silu'(p), dh_{t+j} += w_j dp_t, dw_j = sum_t dp_t h_{t+j}. The
/// cotangent of the state that is handed on joins the last W - 1 rows of dh, which reach into the state that
/// came in where T < W - 1.
namespace samestate {

/// The gradients of a short convolution.
template <class Scalar>
struct ConvolutionGradients {
  Matrix<Scalar> x;       ///< [T, C]
  Matrix<Scalar> kernel;  ///< [C, W]
  Vector<Scalar> bias;    ///< [C]; empty if there is no bias
  Matrix<Scalar> state;   ///< [W - 1, C]
};

/// Inputs as of short_convolution. dy: [T, C], d_state: [W - 1, C], or 0 x 0 if nothing reads the state that
/// is handed on. Throws Error if the sizes disagree.
template <class Scalar>
[[nodiscard]] ConvolutionGradients<Scalar> short_convolution_backward(
    const Matrix<Scalar>& x, const Matrix<Scalar>& kernel, const Vector<Scalar>& bias,
    const Matrix<Scalar>& state, const Matrix<Scalar>& dy, const Matrix<Scalar>& d_state,
    bool activation = true) {
  const Index T = x.rows();
  const Index C = x.cols();
  const Index W = kernel.cols();
  const Matrix<Scalar> sums = short_convolution(x, kernel, bias, state, false).y;
  const bool state_fits = d_state.size() == 0 || (d_state.rows() == W - 1 && d_state.cols() == C);
  if (dy.rows() != T || dy.cols() != C || !state_fits) {
    throw Error("short_convolution_backward: x is " + std::to_string(T) + " x " + std::to_string(C) +
                ", the cotangent of y " + std::to_string(dy.rows()) + " x " + std::to_string(dy.cols()) +
                ", that of the state " + std::to_string(d_state.rows()) + " x " +
                std::to_string(d_state.cols()) + " (must be W - 1 = " + std::to_string(W - 1) + " x C)");
  }
  const Matrix<Scalar> dp = activation ? Matrix<Scalar>(dy.cwiseProduct(silu_slope(sums))) : dy;
  Matrix<Scalar> history(W - 1 + T, C);
  history.topRows(W - 1) = state;
  history.bottomRows(T) = x;
  Matrix<Scalar> d_history = Matrix<Scalar>::Zero(W - 1 + T, C);
  ConvolutionGradients<Scalar> out;
  out.kernel.resize(C, W);
  for (Index j = 0; j < W; ++j) {
    d_history.middleRows(j, T) += dp * kernel.col(j).asDiagonal();
    out.kernel.col(j) = dp.cwiseProduct(history.middleRows(j, T)).colwise().sum().transpose();
  }
  if (d_state.size() != 0) d_history.bottomRows(W - 1) += d_state;
  if (bias.size() != 0) out.bias = dp.colwise().sum().transpose();
  out.x = d_history.bottomRows(T);
  out.state = d_history.topRows(W - 1);
  return out;
}

}  // namespace samestate
