#pragma once

#include <utility>

#include "reference/backward/head_gradients.h"
#include "reference/state_space_duality.h"

/// The backward pass of Mamba-2's state space duality, through that of retention: with q = C, k = B, v =
/// Delta x and g = Delta A, dDelta = dv . x + A dg, dA = sum_t Delta dg, dx = Delta dv + D dy and dD = sum dy
/// . x. A group's dB and dC are sums over its heads.
namespace samestate {

/// The cotangents of the outputs of one head, or of all heads.
template <class Scalar>
struct StateSpaceCotangents {
  Matrix<Scalar> y;      ///< [T, P] of one head; [T, H P] of all
  Matrix<Scalar> state;  ///< [P, N] or [H P, N]; 0 x 0 if nothing reads the final state
};

/// The gradients of one head, in the shapes of its inputs. `run` evaluates the backward pass of Retention in
/// any form: (Sequence, HeadCotangents) -> HeadGradients. Throws Error if shapes disagree.
template <class Scalar, class Run>
[[nodiscard]] StateSpaceHead<Scalar> state_space_backward(const StateSpaceHead<Scalar>& x,
                                                          const StateSpaceCotangents<Scalar>& d, Run&& run) {
  const HeadGradients<Scalar> r =
      run(as_retention(x), HeadCotangents<Scalar>{d.y, Matrix<Scalar>(d.state.transpose())});
  StateSpaceHead<Scalar> out;
  out.x = x.delta.asDiagonal() * r.v + x.skip * d.y;
  out.delta = r.v.cwiseProduct(x.x).rowwise().sum() + x.A * r.g;
  out.A = x.delta.cwiseProduct(r.g).sum();
  out.B = r.k;
  out.C = r.q;
  out.skip = d.y.cwiseProduct(x.x).sum();
  out.initial_state = r.initial_state.transpose();
  return out;
}

/// The gradients of all heads, in the shapes of their inputs. Throws Error if shapes disagree.
template <class Scalar, class Run>
[[nodiscard]] StateSpaceHeads<Scalar> state_space_heads_backward(const StateSpaceHeads<Scalar>& x,
                                                                 const StateSpaceCotangents<Scalar>& d,
                                                                 Run&& run) {
  require_state_space(x);
  detail::require_state_space_extents("the cotangent of y", d.y.rows(), d.y.cols(), x.x.rows(), x.x.cols());
  if (d.state.size() != 0) {
    detail::require_state_space_extents("the cotangent of the final state", d.state.rows(), d.state.cols(),
                                        x.initial_state.rows(), x.initial_state.cols());
  }
  const Index P = x.x.cols() / x.heads();
  const Index N = x.B.cols() / x.groups;
  StateSpaceHeads<Scalar> out = x;
  out.B.setZero();
  out.C.setZero();
  for (Index h = 0; h < x.heads(); ++h) {
    StateSpaceCotangents<Scalar> part{d.y.middleCols(h * P, P), {}};
    if (d.state.size() != 0) part.state = d.state.middleRows(h * P, P);
    const StateSpaceHead<Scalar> head = state_space_backward(x.head(h), part, run);
    const Index group = h / (x.heads() / x.groups);
    out.x.middleCols(h * P, P) = head.x;
    out.delta.col(h) = head.delta;
    out.A(h) = head.A;
    out.B.middleCols(group * N, N) += head.B;
    out.C.middleCols(group * N, N) += head.C;
    out.skip(h) = head.skip;
    out.initial_state.middleRows(h * P, P) = head.initial_state;
  }
  return out;
}

}  // namespace samestate
