#pragma once

#include <cmath>
#include <string>
#include <utility>

#include "reference/activations.h"
#include "reference/error.h"

/// Root-mean-square norms over the last axis (classes C-RMS, C-RMSG; EQUATIONS 5.1). Epsilon is added to the
/// MEAN of squares, inside the root; a zero row stays exactly zero if epsilon > 0. x: [rows, d], weights:
/// [d]. One mean is taken over each row, so heads that are normalised separately are separate rows (RMS-8).
/// All functions throw Error if the sizes disagree.
namespace samestate {

namespace points {
inline constexpr PointRow kResidualRmsNormRows[] = {
    {"sum", "x + residual, before its norm."},
};
inline constexpr PointTable residual_rms_norm{"residual_rms_norm", PointTier::equation, kResidualRmsNormRows};
}  // namespace points

namespace detail {

inline void require_width(Index width, Index weight) {
  if (width != weight) {
    throw Error("norm: rows of " + std::to_string(width) + " and a weight of " + std::to_string(weight));
  }
}

template <class Scalar>
void require_norm_shapes(const Matrix<Scalar>& x, const Matrix<Scalar>& other, const char* name) {
  if (x.rows() == other.rows() && x.cols() == other.cols()) return;
  throw Error("norm: x is " + std::to_string(x.rows()) + " x " + std::to_string(x.cols()) + ", " + name +
              " " + std::to_string(other.rows()) + " x " + std::to_string(other.cols()) +
              "; they must have one shape");
}

}  // namespace detail

/// x (mean x^2 + epsilon)^-1/2 w (RMS-5).
template <class Scalar>
[[nodiscard]] Matrix<Scalar> rms_norm(const Matrix<Scalar>& x, const Vector<Scalar>& weight,
                                      const Scalar& epsilon) {
  using std::sqrt;
  detail::require_width(x.cols(), weight.size());
  Matrix<Scalar> y(x.rows(), x.cols());
  for (Index t = 0; t < x.rows(); ++t) {
    const Scalar mean = x.row(t).squaredNorm() / Scalar(static_cast<double>(x.cols()));
    const Scalar root = sqrt(Scalar(mean + epsilon));
    for (Index i = 0; i < x.cols(); ++i) y(t, i) = x(t, i) / root * weight(i);
  }
  return y;
}

/// The same with the weight 1 + w (RMS-2, RMS-6): Qwen3-Next's layer norms and its norms of q and k heads.
template <class Scalar>
[[nodiscard]] Matrix<Scalar> rms_norm_zero_centred(const Matrix<Scalar>& x, const Vector<Scalar>& weight,
                                                   const Scalar& epsilon) {
  const Vector<Scalar> shifted = weight + Vector<Scalar>::Ones(weight.size());
  return rms_norm(x, shifted, epsilon);
}

/// The results of the fused residual norm.
template <class Scalar>
struct ResidualNorm {
  Matrix<Scalar> y;
  Matrix<Scalar> residual;  ///< x + residual, before the norm
};

/// Zero-centred norm of x + residual, and the sum itself (RMS-4).
template <class Scalar>
[[nodiscard]] ResidualNorm<Scalar> rms_norm_residual(const Matrix<Scalar>& x, const Matrix<Scalar>& residual,
                                                     const Vector<Scalar>& weight, const Scalar& epsilon) {
  detail::require_norm_shapes(x, residual, "the residual");
  Matrix<Scalar> sum = x + residual;
  Matrix<Scalar> y = rms_norm_zero_centred(stored(sum, points::residual_rms_norm["sum"]), weight, epsilon);
  return {std::move(y), std::move(sum)};
}

/// Norm first, then the weight, then the gate: rms_norm(x) silu(z) (RMS-1, RMS-8, DEND-45). z: [rows, d].
template <class Scalar>
[[nodiscard]] Matrix<Scalar> rms_norm_gated(const Matrix<Scalar>& x, const Matrix<Scalar>& z,
                                            const Vector<Scalar>& weight, const Scalar& epsilon) {
  detail::require_norm_shapes(x, z, "the gate z");
  return rms_norm(x, weight, epsilon).cwiseProduct(silu(z));
}

/// Gate first: rms_norm(x silu(z)), Mamba-2's order (EQUATIONS 5.1). This is not the same function as
/// rms_norm_gated.
template <class Scalar>
[[nodiscard]] Matrix<Scalar> rms_norm_of_gated(const Matrix<Scalar>& x, const Matrix<Scalar>& z,
                                               const Vector<Scalar>& weight, const Scalar& epsilon) {
  detail::require_norm_shapes(x, z, "the gate z");
  const Matrix<Scalar> gated = x.cwiseProduct(silu(z));
  return rms_norm(gated, weight, epsilon);
}

}  // namespace samestate
