#pragma once

#include <cmath>

#include "reference/backward/head_gradients.h"
#include "reference/backward/reverse_sweep.h"

/// The backward pass of the recurrent family, token by token from the last to the first, per head:
///   forward   R = e^{g_t} S_{t-1};  e = v - R^T k;  u = beta e;  S_t = R + k u^T;  o = scale S_t^T q
///   reverse   D <- D + scale q do^T;  dq = scale S_t do;  du = D^T k;  dbeta = du . e;  de = beta du;
///             dv = de;  dk = D u - R de;  dR = D - k de^T;  dg = <dR, R>;  D <- e^{g_t} dR
/// where D begins as the cotangent of the final state and ends as the gradient of the initial state. Without
/// a delta term u = v, so dv = D^T k, dk = D v and dR = D; without a decay R = S_{t-1}.
namespace samestate {

namespace detail {

/// One token of the forward pass, with the values that its reverse reads.
template <class System, class Scalar>
struct ForwardToken {
  Scalar decay{1};
  Vector<Scalar> q, k, v;  ///< [dk], [dk], [dv]
  Matrix<Scalar> R;        ///< [dk, dv] the decayed state
  Vector<Scalar> e;        ///< [dv] v - R^T k, or v in a system without a delta term
  Vector<Scalar> u;        ///< [dv] the value that is written
  Matrix<Scalar> state;    ///< [dk, dv] after the token

  ForwardToken(const Sequence<Scalar>& x, Index t, const Matrix<Scalar>& S)
      : q(x.q.row(t).transpose()), k(x.k.row(t).transpose()), v(x.v.row(t).transpose()), R(S) {
    using std::exp;
    if constexpr (System::gated) {
      decay = exp(x.g(t));
      R *= decay;
    }
    e = v;
    if constexpr (System::delta) e -= R.transpose() * k;
    u = e;
    if constexpr (System::delta) u *= x.beta(t);
    state = R + k * u.transpose();
  }
};

}  // namespace detail

/// The gradients of one head from the cotangents of its outputs. States are kept about sqrt(T) tokens apart
/// (reverse_sweep). A reset, g = -inf, passes nothing back, and its own dg is 0. A token with k = v = q = do
/// = 0, beta = 0 and g = 0 changes no other gradient, and its dg equals that of its successor. T = 0 returns
/// the cotangent of the final state as that of the initial one. Throws Error if a cotangent has another
/// shape than its output.
template <class System, class Scalar>
[[nodiscard]] HeadGradients<Scalar> recurrent_backward(const Sequence<Scalar>& x,
                                                       const HeadCotangents<Scalar>& d) {
  require_cotangents(x, d);
  using Token = detail::ForwardToken<System, Scalar>;
  HeadGradients<Scalar> out = zero_gradients<System>(x);
  Matrix<Scalar>& D = out.initial_state;
  D = final_state_cotangent(x, d);
  const auto advance = [&](Index t, const Matrix<Scalar>& S) { return Token(x, t, S).state; };
  const auto reverse = [&](Index t, const Matrix<Scalar>& S) {
    const Token now(x, t, S);
    const Vector<Scalar> d_o = d.o.row(t).transpose();
    D += (x.scale * now.q) * d_o.transpose();
    out.q.row(t) = (x.scale * (now.state * d_o).eval()).transpose();
    const Vector<Scalar> du = D.transpose() * now.k;
    out.k.row(t) = (D * now.u).transpose();
    if constexpr (System::delta) {
      const Vector<Scalar> de = x.beta(t) * du;
      out.beta(t) = du.dot(now.e);
      out.v.row(t) = de.transpose();
      out.k.row(t) -= (now.R * de).transpose();
      D -= now.k * de.transpose();
    } else {
      out.v.row(t) = du.transpose();
    }
    if constexpr (System::gated) {
      out.g(t) = D.cwiseProduct(now.R).sum();
      D *= now.decay;
    }
  };
  reverse_sweep(x.tokens(), x.initial_state, advance, reverse);
  return out;
}

}  // namespace samestate
