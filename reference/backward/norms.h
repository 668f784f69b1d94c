#pragma once

#include <cmath>

#include "reference/backward/gates.h"
#include "reference/norms.h"

/// The backward pass of the norms of reference/norms.h. x, z, dy: [rows, d], weight: [d]. All functions
/// throw Error if the sizes disagree.
namespace samestate {

/// The gradients of a norm; `z` is empty for a norm without a gate.
template <class Scalar>
struct NormGradients {
  Matrix<Scalar> x;       ///< [rows, d]
  Vector<Scalar> weight;  ///< [d]
  Matrix<Scalar> z = {};  ///< [rows, d]
};

/// For n = x r, r = (mean x^2 + epsilon)^-1/2, y = n w: dn = dy w, dx = r (dn - n mean(n dn)), and dw = sum of
/// dy n over the rows.
template <class Scalar>
[[nodiscard]] NormGradients<Scalar> rms_norm_backward(const Matrix<Scalar>& x, const Vector<Scalar>& weight,
                                                      const Scalar& epsilon, const Matrix<Scalar>& dy) {
  using std::sqrt;
  detail::require_width(x.cols(), weight.size());
  detail::require_norm_shapes(x, dy, "the cotangent");
  const Scalar width(static_cast<double>(x.cols()));
  NormGradients<Scalar> out{Matrix<Scalar>(x.rows(), x.cols()), Vector<Scalar>::Zero(x.cols())};
  for (Index t = 0; t < x.rows(); ++t) {
    const Scalar mean = x.row(t).squaredNorm() / width;
    const Scalar root = sqrt(Scalar(mean + epsilon));
    const Vector<Scalar> n = x.row(t).transpose() / root;
    const Vector<Scalar> dn = dy.row(t).transpose().cwiseProduct(weight);
    const Scalar along = n.cwiseProduct(dn).sum() / width;
    // A sum of terms, so that a cotangent which is added to it is one more of them: in any order. Autograd of x * x
    // adds the second in two halves.
    const Vector<Scalar> half = Scalar(0.5) * along * n / root;
    out.x.row(t) = (dn / root - half - half).transpose();
    out.weight += dy.row(t).transpose().cwiseProduct(n);
  }
  return out;
}

/// The same for the weight 1 + w; dw is unchanged.
template <class Scalar>
[[nodiscard]] NormGradients<Scalar> rms_norm_zero_centred_backward(const Matrix<Scalar>& x,
                                                                   const Vector<Scalar>& weight,
                                                                   const Scalar& epsilon,
                                                                   const Matrix<Scalar>& dy) {
  const Vector<Scalar> shifted = weight + Vector<Scalar>::Ones(weight.size());
  return rms_norm_backward(x, shifted, epsilon, dy);
}

/// The zero-centred norm of x + residual, which also returns the sum. The cotangent of that sum, d_sum, is
/// added behind the norm's backward pass. `x` of the result is the gradient of x and of the residual alike.
template <class Scalar>
[[nodiscard]] NormGradients<Scalar> rms_norm_residual_backward(
    const Matrix<Scalar>& x, const Matrix<Scalar>& residual, const Vector<Scalar>& weight,
    const Scalar& epsilon, const Matrix<Scalar>& dy, const Matrix<Scalar>& d_sum) {
  detail::require_norm_shapes(x, residual, "the residual");
  detail::require_norm_shapes(x, d_sum, "the cotangent of the sum");
  const Matrix<Scalar> sum = stored<Scalar>(x + residual, points::residual_rms_norm["sum"]);
  NormGradients<Scalar> out = rms_norm_zero_centred_backward(sum, weight, epsilon, dy);
  out.x += d_sum;
  return out;
}

/// Norm first, then the gate, y = rms_norm(x) silu(z): the norm's cotangent is dy silu(z), and dz = dy
/// rms_norm(x) silu'(z).
template <class Scalar>
[[nodiscard]] NormGradients<Scalar> rms_norm_gated_backward(const Matrix<Scalar>& x, const Matrix<Scalar>& z,
                                                            const Vector<Scalar>& weight,
                                                            const Scalar& epsilon, const Matrix<Scalar>& dy) {
  detail::require_norm_shapes(x, z, "the gate z");
  detail::require_norm_shapes(x, dy, "the cotangent");
  NormGradients<Scalar> out = rms_norm_backward<Scalar>(x, weight, epsilon, dy.cwiseProduct(silu(z)));
  out.z = dy.cwiseProduct(rms_norm(x, weight, epsilon)).cwiseProduct(silu_slope(z));
  return out;
}

/// Gate first, y = rms_norm(x silu(z)).
template <class Scalar>
[[nodiscard]] NormGradients<Scalar> rms_norm_of_gated_backward(const Matrix<Scalar>& x,
                                                               const Matrix<Scalar>& z,
                                                               const Vector<Scalar>& weight,
                                                               const Scalar& epsilon,
                                                               const Matrix<Scalar>& dy) {
  detail::require_norm_shapes(x, z, "the gate z");
  NormGradients<Scalar> out = rms_norm_backward<Scalar>(x.cwiseProduct(silu(z)), weight, epsilon, dy);
  out.z = out.x.cwiseProduct(x).cwiseProduct(silu_slope(z));
  out.x = out.x.cwiseProduct(silu(z));
  return out;
}

}  // namespace samestate
