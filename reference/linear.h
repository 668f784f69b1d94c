#pragma once

#include <string>
#include <utility>

#include "reference/error.h"
#include "reference/rounding_point.h"

namespace samestate {

namespace detail {

template <class Scalar>
void require_linear(const Matrix<Scalar>& x, const Matrix<Scalar>& weight, const Vector<Scalar>& bias) {
  if (weight.cols() != x.cols() || (bias.size() != 0 && bias.size() != weight.rows())) {
    throw Error("linear: x has " + std::to_string(x.cols()) + " columns, the weight is " +
                std::to_string(weight.rows()) + " x " + std::to_string(weight.cols()) + ", the bias has " +
                std::to_string(bias.size()));
  }
}

}  // namespace detail

/// y = x W^T + b, the projection used in every layer; its product and its result are at one rounding point.
/// x: [T, in], weight: [out, in], bias: [out] or empty -> [T, out]. Throws Error if the sizes disagree.
template <class Scalar>
[[nodiscard]] Matrix<Scalar> linear(const Matrix<Scalar>& x, const Matrix<Scalar>& weight,
                                    const Vector<Scalar>& bias, Point point) {
  detail::require_linear(x, weight, bias);
  Matrix<Scalar> y = matrix_product(x, weight.transpose(), point);
  if (bias.size() != 0) y.rowwise() += bias.transpose();
  return stored(std::move(y), point);
}

/// The same without a bias.
template <class Scalar>
[[nodiscard]] Matrix<Scalar> linear(const Matrix<Scalar>& x, const Matrix<Scalar>& weight, Point point) {
  return linear(x, weight, Vector<Scalar>(), point);
}

/// The same for a scalar that rounds nowhere and so needs no point.
template <class Scalar>
[[nodiscard]] Matrix<Scalar> linear(const Matrix<Scalar>& x, const Matrix<Scalar>& weight,
                                    const Vector<Scalar>& bias = {}) {
  static_assert(!RoundingPoint<Scalar>::rounds, "this scalar rounds at points: say which one this is");
  detail::require_linear(x, weight, bias);
  Matrix<Scalar> y = x * weight.transpose();
  if (bias.size() != 0) y.rowwise() += bias.transpose();
  return y;
}

}  // namespace samestate
