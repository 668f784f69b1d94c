#pragma once

#include <cmath>
#include <string>

#include "reference/gates.h"

/// The backward pass of activations and of the gates of the gated delta rule.
namespace samestate {

/// 1 - sigma(x) as sigma(-x), which keeps its digits. Kernels also subtract sigma(x) from 1, which leaves the error of
/// sigma(x) in a small difference: scalars that carry an error have their own (oracles/bounds/logistic_complement.h).
template <class Scalar>
[[nodiscard]] Scalar logistic_complement(const Scalar& x) {
  return logistic(Scalar(-x));
}

/// The derivative of sigma(x), sigma (1 - sigma).
template <class Scalar>
[[nodiscard]] Scalar logistic_slope(const Scalar& x) {
  return logistic(x) * logistic_complement(x);
}

/// The derivative of silu(x) = x sigma(x), sigma (1 + x (1 - sigma)).
template <class Scalar>
[[nodiscard]] Scalar silu_slope(const Scalar& x) {
  return logistic(x) * (Scalar(1) + x * logistic_complement(x));
}

template <class Scalar>
[[nodiscard]] Matrix<Scalar> logistic_slope(const Matrix<Scalar>& x) {
  return x.unaryExpr([](const Scalar& e) { return logistic_slope(e); });
}

template <class Scalar>
[[nodiscard]] Matrix<Scalar> silu_slope(const Matrix<Scalar>& x) {
  return x.unaryExpr([](const Scalar& e) { return silu_slope(e); });
}

/// The gradients of log_decay.
template <class Scalar>
struct LogDecayGradients {
  Matrix<Scalar> a;        ///< [T, H]
  Vector<Scalar> A_log;    ///< [H]
  Vector<Scalar> dt_bias;  ///< [H]
};

/// For g = -exp(A_log) softplus(a + dt_bias): da = -dg e^{A_log} sigma(a + dt_bias), dA_log = sum_t dg g and
/// ddt_bias = sum_t da. A dg that is 0, as of a reset, contributes 0 even where g is infinite. dg: [T, H].
/// Throws Error if the sizes disagree.
template <class Scalar>
[[nodiscard]] LogDecayGradients<Scalar> log_decay_backward(const Matrix<Scalar>& a,
                                                           const Vector<Scalar>& A_log,
                                                           const Vector<Scalar>& dt_bias,
                                                           const Matrix<Scalar>& dg) {
  using std::exp;
  const Matrix<Scalar> g = log_decay(a, A_log, dt_bias);
  if (dg.rows() != a.rows() || dg.cols() != a.cols()) {
    throw Error("log_decay_backward: a is " + std::to_string(a.rows()) + " x " + std::to_string(a.cols()) +
                ", the cotangent " + std::to_string(dg.rows()) + " x " + std::to_string(dg.cols()));
  }
  LogDecayGradients<Scalar> out{Matrix<Scalar>::Zero(a.rows(), a.cols()), Vector<Scalar>::Zero(a.cols()),
                                Vector<Scalar>::Zero(a.cols())};
  for (Index h = 0; h < a.cols(); ++h) {
    const Scalar rate = exp(A_log(h));
    for (Index t = 0; t < a.rows(); ++t) {
      if (dg(t, h) == Scalar(0)) continue;
      out.a(t, h) = -(dg(t, h) * rate * logistic(Scalar(a(t, h) + dt_bias(h))));
      out.A_log(h) += dg(t, h) * g(t, h);
      out.dt_bias(h) += out.a(t, h);
    }
  }
  return out;
}

/// For beta = sigma(b): db = dbeta beta (1 - beta). b, dbeta: [T, H] -> [T, H].
template <class Scalar>
[[nodiscard]] Matrix<Scalar> write_strength_backward(const Matrix<Scalar>& b, const Matrix<Scalar>& dbeta) {
  return dbeta.cwiseProduct(logistic_slope(b));
}

/// The gradients of a product with a gate, y = x sigma(z), as behind gated attention.
template <class Scalar>
struct GatedGradients {
  Matrix<Scalar> x;  ///< [T, n]
  Matrix<Scalar> z;  ///< [T, n]
};

/// dx = dy sigma(z), dz = dy x sigma(z) (1 - sigma(z)). All [T, n].
template <class Scalar>
[[nodiscard]] GatedGradients<Scalar> logistic_gate_backward(const Matrix<Scalar>& x, const Matrix<Scalar>& z,
                                                            const Matrix<Scalar>& dy) {
  return {dy.cwiseProduct(logistic(z)), dy.cwiseProduct(x).cwiseProduct(logistic_slope(z))};
}

}  // namespace samestate
