#pragma once

#include <cmath>

#include "reference/sequence.h"

namespace samestate {

/// Rows divided by their length: x (sum x^2 + epsilon)^-1/2 (GDN-32, EQUATIONS 5.2). Epsilon is added to the
/// SUM of squares, inside the root, so a zero row stays exactly zero. x: [rows, d].
template <class Scalar>
[[nodiscard]] Matrix<Scalar> l2norm(const Matrix<Scalar>& x, const Scalar& epsilon = Scalar(1e-6)) {
  using std::sqrt;
  Matrix<Scalar> y = x;
  for (Index t = 0; t < x.rows(); ++t) {
    const Scalar sum = x.row(t).squaredNorm();
    y.row(t) /= sqrt(sum + epsilon);
  }
  return y;
}

}  // namespace samestate
