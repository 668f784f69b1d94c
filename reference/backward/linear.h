#pragma once

#include <string>

#include "reference/linear.h"

namespace samestate {

namespace points {
inline constexpr PointRow kLinearBackwardRows[] = {
    {"dx", "dy W.", PointUse::both},
    {"dweight", "dy^T x.", PointUse::both},
};
inline constexpr PointTable linear_backward{"linear_backward", PointTier::equation, kLinearBackwardRows};
}  // namespace points

/// The gradients of a projection.
template <class Scalar>
struct LinearGradients {
  Matrix<Scalar> x;       ///< [T, in]
  Matrix<Scalar> weight;  ///< [out, in]
  Vector<Scalar> bias;    ///< [out]; a caller without a bias leaves it unread
};

/// For y = x W^T + b: dx = dy W, dW = dy^T x, db = the sum of dy over the tokens. x: [T, in], weight: [out,
/// in], dy: [T, out]. Throws Error if the sizes disagree.
template <class Scalar>
[[nodiscard]] LinearGradients<Scalar> linear_backward(const Matrix<Scalar>& x, const Matrix<Scalar>& weight,
                                                      const Matrix<Scalar>& dy) {
  if (weight.cols() != x.cols() || dy.rows() != x.rows() || dy.cols() != weight.rows()) {
    throw Error("linear_backward: x is " + std::to_string(x.rows()) + " x " + std::to_string(x.cols()) +
                ", the weight " + std::to_string(weight.rows()) + " x " + std::to_string(weight.cols()) +
                ", the cotangent " + std::to_string(dy.rows()) + " x " + std::to_string(dy.cols()));
  }
  constexpr const PointTable& at = points::linear_backward;
  return {stored(matrix_product(dy, weight, at["dx"]), at["dx"]),
          stored(matrix_product(dy.transpose(), x, at["dweight"]), at["dweight"]),
          dy.colwise().sum().transpose()};
}

}  // namespace samestate
