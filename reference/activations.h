#pragma once

#include <cmath>

#include "reference/rounding_point.h"

/// Activations, on one value and on every element of a matrix. sigma is always the logistic function
/// (EQUATIONS 1; ACT-2 calls silu so).
namespace samestate {

/// 1 / (1 + e^-x), from the side that does not overflow: known to a share of itself however small it is.
template <class Scalar>
[[nodiscard]] Scalar logistic_by_exp(const Scalar& x) {
  using std::exp;
  if (x < Scalar(0)) {
    const Scalar e = exp(x);
    return e / (Scalar(1) + e);
  }
  return Scalar(1) / (Scalar(1) + exp(-x));
}

/// The same of a gate or an activation, which kernels also evaluate as (1 + tanh(x / 2)) / 2, known to a rounding of 1: a scalar
/// that carries errors has that in its own overload.
template <class Scalar>
[[nodiscard]] Scalar logistic(const Scalar& x) {
  return logistic_by_exp(x);
}

/// x sigma(x) (ACT-2).
template <class Scalar>
[[nodiscard]] Scalar silu(const Scalar& x) {
  return x * logistic(x);
}

/// log(1 + e^x) as max(x, 0) + log1p(e^-|x|) (ACT-3).
template <class Scalar>
[[nodiscard]] Scalar softplus(const Scalar& x) {
  using std::exp;
  using std::log1p;
  if (x < Scalar(0)) return log1p(exp(x));
  return x + log1p(exp(-x));
}

template <class Scalar>
[[nodiscard]] Matrix<Scalar> logistic(const Matrix<Scalar>& x) {
  return x.unaryExpr([](const Scalar& e) { return logistic(e); });
}

template <class Scalar>
[[nodiscard]] Matrix<Scalar> silu(const Matrix<Scalar>& x) {
  return x.unaryExpr([](const Scalar& e) { return silu(e); });
}

/// Rows summing to one: e^{x - max} over their sum (MOE-2). Throws nothing; a row of no columns stays empty.
template <class Scalar>
[[nodiscard]] Matrix<Scalar> softmax(const Matrix<Scalar>& x) {
  using std::exp;
  Matrix<Scalar> p(x.rows(), x.cols());
  for (Index t = 0; t < x.rows(); ++t) {
    Scalar largest = x.cols() > 0 ? x(t, 0) : Scalar(0);
    for (Index i = 1; i < x.cols(); ++i) {
      if (largest < x(t, i)) largest = x(t, i);
    }
    const Scalar shift = softmax_shift(largest);
    Scalar sum(0);
    for (Index i = 0; i < x.cols(); ++i) {
      p(t, i) = exp(Scalar(x(t, i) - shift));
      sum += p(t, i);
    }
    for (Index i = 0; i < x.cols(); ++i) p(t, i) /= sum;
  }
  return p;
}

}  // namespace samestate
