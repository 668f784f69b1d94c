#pragma once

#include <cmath>
#include <utility>

#include "reference/l2norm.h"
#include "reference/norms.h"
#include "reference/rounding_point.h"

namespace samestate {

namespace points {
inline constexpr PointRow kL2normBackwardRows[] = {
    {"y", "The rows of unit length, as the forward pass saved them."},
    {"dy", "Their cotangent, as it is read."},
    {"operand",
     "The rows of unit length, as the rule behind the norm reads them.",
     PointUse::stored,
     {},
     {},
     true},
};
inline constexpr PointTable l2norm_backward{"l2norm_backward", PointTier::equation, kL2normBackwardRows};
}  // namespace points

/// The gradient of x for y = l2norm(x) = x r, r = (sum x^2 + epsilon)^-1/2: dx = r (dy - y <y, dy>). It is
/// exact for every epsilon because y is the saved value, whose length is below 1; with x / |x| in place of y
/// it would not be. x, dy: [rows, d]. Throws Error if the shapes disagree.
template <class Scalar>
[[nodiscard]] Matrix<Scalar> l2norm_backward(const Matrix<Scalar>& x, const Matrix<Scalar>& dy,
                                             const Scalar& epsilon = Scalar(1e-6)) {
  using std::sqrt;
  detail::require_norm_shapes(x, dy, "the cotangent");
  const Matrix<Scalar> y = stored(l2norm(x, epsilon), points::l2norm_backward["y"]);
  const Matrix<Scalar> d = stored(dy, points::l2norm_backward["dy"]);
  Matrix<Scalar> dx(x.rows(), x.cols());
  for (Index t = 0; t < x.rows(); ++t) {
    const Scalar r = Scalar(1) / Scalar(sqrt(Scalar(x.row(t).squaredNorm() + epsilon)));
    const Scalar along = y.row(t).cwiseProduct(d.row(t)).sum();
    dx.row(t) = r * (d.row(t) - along * y.row(t));
  }
  return dx;
}

}  // namespace samestate
