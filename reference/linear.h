#pragma once

#include <string>
#include <utility>

#include "reference/error.h"
#include "reference/rounding_point.h"

namespace samestate {

/// y = x W^T + b, the projection of every layer. x: [T, in], weight: [out, in], bias: [out] or empty -> [T,
/// out]. Throws Error where the sizes disagree.
template <class Scalar>
[[nodiscard]] Matrix<Scalar> linear(const Matrix<Scalar>& x, const Matrix<Scalar>& weight,
                                    const Vector<Scalar>& bias = {},
                                    const PointPlace& place = std::source_location::current()) {
  if (weight.cols() != x.cols() || (bias.size() != 0 && bias.size() != weight.rows())) {
    throw Error("linear: x has " + std::to_string(x.cols()) + " columns, the weight is " +
                std::to_string(weight.rows()) + " x " + std::to_string(weight.cols()) + ", the bias has " +
                std::to_string(bias.size()));
  }
  Matrix<Scalar> y = matrix_product(x, weight.transpose(), place);
  if (bias.size() != 0) y.rowwise() += bias.transpose();
  return stored(std::move(y), place);
}

}  // namespace samestate
