#pragma once

#include <cmath>
#include <string>

#include "reference/activations.h"
#include "reference/error.h"

/// The gates of the gated delta rule (class C-GATE).
namespace samestate {

/// g = -exp(A_log) softplus(a + dt_bias), the log-decay, <= 0 (GDN-12, GDN-29, DEND-22; GDN-47 corrected).
/// a: [T, H], A_log, dt_bias: [H] -> [T, H]. Throws Error if the sizes disagree.
template <class Scalar>
[[nodiscard]] Matrix<Scalar> log_decay(const Matrix<Scalar>& a, const Vector<Scalar>& A_log,
                                       const Vector<Scalar>& dt_bias) {
  using std::exp;
  if (A_log.size() != a.cols() || dt_bias.size() != a.cols()) {
    throw Error("log_decay: a has " + std::to_string(a.cols()) + " heads, A_log " +
                std::to_string(A_log.size()) + ", dt_bias " + std::to_string(dt_bias.size()));
  }
  Matrix<Scalar> g(a.rows(), a.cols());
  for (Index h = 0; h < a.cols(); ++h) {
    const Scalar rate = exp(A_log(h));
    for (Index t = 0; t < a.rows(); ++t) g(t, h) = -(rate * softplus(Scalar(a(t, h) + dt_bias(h))));
  }
  return g;
}

/// beta = sigma(b), the write strength, in (0, 1) (GDN-11, GDN-30; GDN-45 corrected). [T, H] -> [T, H].
template <class Scalar>
[[nodiscard]] Matrix<Scalar> write_strength(const Matrix<Scalar>& b) {
  return logistic(b);
}

}  // namespace samestate
