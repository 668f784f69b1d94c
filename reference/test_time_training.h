#pragma once

#include <string>

#include "reference/dual_number.h"
#include "reference/no_value.h"
#include "reference/recurrence.h"

/// The test-time-training view (class C-TTT; EQUATIONS 5.12): the state S is the weight of a linear model v =
/// S^T k, each token is one step of learning it, and the loss determines the system. Row convention: S [dk,
/// dv], k [dk], v [dv]; the documents write the transposes. All functions throw Error if the sizes disagree.
namespace samestate {

namespace detail {

template <class Scalar>
void require_token(const Matrix<Scalar>& S, const Vector<Scalar>& k, const Vector<Scalar>& v) {
  if (S.rows() != k.size() || S.cols() != v.size()) {
    throw Error("test_time_training: the state is " + std::to_string(S.rows()) + " x " +
                std::to_string(S.cols()) + ", the key has " + std::to_string(k.size()) +
                " entries, the value " + std::to_string(v.size()) + "; the state must be key by value");
  }
}

}  // namespace detail

/// -v . (S^T k), an inner product and not a cosine (TTT-3 corrected).
template <class Scalar>
[[nodiscard]] Scalar inner_product_loss(const Matrix<Scalar>& S, const Vector<Scalar>& k,
                                        const Vector<Scalar>& v) {
  detail::require_token(S, k, v);
  return -(k.transpose() * S * v)(0, 0);
}

/// The same + (1 - gamma)/2 |S|_F^2, a ridge (TTT-5).
template <class Scalar>
[[nodiscard]] Scalar ridge_loss(const Matrix<Scalar>& S, const Vector<Scalar>& k, const Vector<Scalar>& v,
                                const Scalar& gamma) {
  const Scalar ridge = Scalar(0.5) * (Scalar(1) - gamma) * S.squaredNorm();
  return inner_product_loss(S, k, v) + ridge;
}

/// 1/2 |S^T k - v|^2 (DELTA-1 corrected: the loss and not its gradient).
template <class Scalar>
[[nodiscard]] Scalar squared_loss(const Matrix<Scalar>& S, const Vector<Scalar>& k, const Vector<Scalar>& v) {
  detail::require_token(S, k, v);
  const Vector<Scalar> error = S.transpose() * k - v;
  return Scalar(0.5) * error.squaredNorm();
}

/// -k v^T (TTT-4).
template <class Scalar>
[[nodiscard]] Matrix<Scalar> inner_product_gradient(const Matrix<Scalar>& S, const Vector<Scalar>& k,
                                                    const Vector<Scalar>& v) {
  detail::require_token(S, k, v);
  return -(k * v.transpose());
}

/// -k v^T + (1 - gamma) S (TTT-5).
template <class Scalar>
[[nodiscard]] Matrix<Scalar> ridge_gradient(const Matrix<Scalar>& S, const Vector<Scalar>& k,
                                            const Vector<Scalar>& v, const Scalar& gamma) {
  return inner_product_gradient(S, k, v) + Scalar(Scalar(1) - gamma) * S;
}

/// k (S^T k - v)^T (DELTA-1).
template <class Scalar>
[[nodiscard]] Matrix<Scalar> squared_gradient(const Matrix<Scalar>& S, const Vector<Scalar>& k,
                                              const Vector<Scalar>& v) {
  detail::require_token(S, k, v);
  const Vector<Scalar> error = S.transpose() * k - v;
  return k * error.transpose();
}

/// dL/dS by forward differentiation, one pass per entry. `loss` maps a Matrix<DualNumber<Scalar>> to a
/// DualNumber<Scalar>: the loss templates above, with the token as constants.
template <class Scalar, class Loss>
[[nodiscard]] Matrix<Scalar> gradient_by_dual_numbers(const Loss& loss, const Matrix<Scalar>& S) {
  using Dual = DualNumber<Scalar>;
  Matrix<Dual> at = S.template cast<Dual>();
  Matrix<Scalar> gradient(S.rows(), S.cols());
  for (Index i = 0; i < S.rows(); ++i) {
    for (Index j = 0; j < S.cols(); ++j) {
      at(i, j) = Dual(S(i, j), Scalar(1));
      gradient(i, j) = loss(at).derivative();
      at(i, j) = Dual(S(i, j));
    }
  }
  return gradient;
}

/// dL/dS by (L(S + h) - L(S - h)) / 2h. For a quadratic loss the truncation error is 0 for every h, and a
/// large h has the smallest rounding error. Throws Error unless h > 0.
template <class Scalar, class Loss>
[[nodiscard]] Matrix<Scalar> gradient_by_central_differences(const Loss& loss, const Matrix<Scalar>& S,
                                                             const Scalar& h) {
  if (!(h > Scalar(0))) throw Error("central differences: the step must be positive");
  Matrix<Scalar> at = S;
  Matrix<Scalar> gradient(S.rows(), S.cols());
  for (Index i = 0; i < S.rows(); ++i) {
    for (Index j = 0; j < S.cols(); ++j) {
      at(i, j) = S(i, j) + h;
      const Scalar above = loss(at);
      at(i, j) = S(i, j) - h;
      const Scalar below = loss(at);
      at(i, j) = S(i, j);
      gradient(i, j) = (above - below) / (Scalar(2) * h);
    }
  }
  return gradient;
}

/// S - eta dL/dS (C-TTT).
template <class Scalar>
[[nodiscard]] Matrix<Scalar> gradient_step(const Matrix<Scalar>& S, const Matrix<Scalar>& gradient,
                                           const Scalar& eta) {
  if (S.rows() != gradient.rows() || S.cols() != gradient.cols())
    throw Error("gradient_step: state and gradient differ in shape");
  return S - eta * gradient;
}

/// X with M X = B for a symmetric positive definite M, by elimination without pivoting. M: [n, n], B: [n, m].
/// Throws Error for other shapes, and NoValue if rounding leaves a pivot that is not positive.
template <class Scalar>
[[nodiscard]] Matrix<Scalar> solve_positive_definite(Matrix<Scalar> M, Matrix<Scalar> B) {
  if (M.rows() != M.cols() || M.rows() != B.rows())
    throw Error("solve: the matrix must be square, as high as B");
  const Index n = M.rows();
  for (Index p = 0; p < n; ++p) {
    if (!(M(p, p) > Scalar(0))) throw NoValue("solve: pivot " + std::to_string(p) + " is not positive");
    for (Index i = p + 1; i < n; ++i) {
      const Scalar factor = M(i, p) / M(p, p);
      for (Index j = p; j < n; ++j) M(i, j) -= factor * M(p, j);
      for (Index j = 0; j < B.cols(); ++j) B(i, j) -= factor * B(p, j);
    }
  }
  for (Index i = n - 1; i >= 0; --i) {
    for (Index c = 0; c < B.cols(); ++c) {
      Scalar sum = B(i, c);
      for (Index j = i + 1; j < n; ++j) sum -= M(i, j) * B(j, c);
      B(i, c) = sum / M(i, i);
    }
  }
  return B;
}

/// argmin over S of 1/2 |S^T k - v|^2 + 1/(2 eta) |S - S_0|_F^2, from its normal equations
/// (I + eta k k^T) S = S_0 + eta k v^T (EQ-06). Throws Error for eta < 0.
template <class Scalar>
[[nodiscard]] Matrix<Scalar> proximal_step(const Matrix<Scalar>& S0, const Vector<Scalar>& k,
                                           const Vector<Scalar>& v, const Scalar& eta) {
  detail::require_token(S0, k, v);
  if (eta < Scalar(0)) throw Error("proximal_step: eta must not be negative");
  const Matrix<Scalar> M = Matrix<Scalar>::Identity(k.size(), k.size()) + eta * k * k.transpose();
  const Matrix<Scalar> B = S0 + eta * k * v.transpose();
  return solve_positive_definite<Scalar>(M, B);
}

/// beta = eta / (1 + eta |k|^2), the write strength that makes the delta rule the proximal step (EQ-06).
template <class Scalar>
[[nodiscard]] Scalar proximal_write_strength(const Vector<Scalar>& k, const Scalar& eta) {
  return eta / (Scalar(1) + eta * k.squaredNorm());
}

/// A whole sequence of steps: S <- step(S, k_t, v_t, t), o_t = scale S^T q_t. `delta` stays zero, because a
/// step need not have rank one.
template <class Scalar, class Step>
[[nodiscard]] Trajectory<Scalar> test_time_training(const Sequence<Scalar>& x, const Step& step) {
  Trajectory<Scalar> out = empty_trajectory(x);
  out.delta.setZero();
  for (Index t = 0; t < x.tokens(); ++t) {
    const Vector<Scalar> k = x.k.row(t).transpose();
    const Vector<Scalar> v = x.v.row(t).transpose();
    out.state = step(out.state, k, v, t);
    out.o.row(t) = x.scale * (x.q.row(t) * out.state).eval();
  }
  return out;
}

}  // namespace samestate
