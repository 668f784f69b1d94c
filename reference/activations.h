#pragma once

#include <cmath>

#include "reference/rounding_point.h"

/// Activation functions, on one value and on every element of a matrix. sigma is always the logistic function
/// (EQUATIONS 1; ACT-2 writes it that way).
namespace samestate {

/// 1 / (1 + e^-x), evaluated on the side that does not overflow, so that the relative error stays small
/// however small the value is.
template <class Scalar>
[[nodiscard]] Scalar logistic_by_exp(const Scalar& x) {
  using std::exp;
  if (x < Scalar(0)) {
    const Scalar e = exp(x);
    return e / (Scalar(1) + e);
  }
  return Scalar(1) / (Scalar(1) + exp(-x));
}

/// The logistic function of a gate or an activation. Kernels also evaluate it as (1 + tanh(x / 2)) / 2, whose
/// error is absolute, one rounding of 1; a scalar that carries errors accounts for this in its own overload.
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

/// The softmax of each row: e^{x - max} divided by its sum (MOE-2). Throws nothing; a row without columns
/// stays empty.
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
