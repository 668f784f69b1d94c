#pragma once

#include "reference/rounding_point.h"

namespace samestate {

namespace points {
inline constexpr PointRow kWeightGradientRows[] = {
    {"written",
     "The gradient of a vector of weights, as it is written: in 16 bits by a kernel whose weights have 16 "
     "bits.",
     PointUse::stored,
     {},
     {},
     true},
};
inline constexpr PointTable weight_gradient{"weight_gradient", PointTier::layer, kWeightGradientRows};
}  // namespace points

/// The gradient of a vector of weights, a sum over all sequences of a call, as the one row that a vector is. Weights that the
/// judge draws in fp32 (norms, biases, rates) have their gradients in fp32 unless a contract switches the point.
template <class Scalar>
[[nodiscard]] Matrix<Scalar> as_row(const Vector<Scalar>& x) {
  return stored<Scalar>(x.transpose(), points::weight_gradient["written"]);
}

}  // namespace samestate
