#pragma once

#include "reference/backward/recurrence.h"
#include "reference/linear_attention.h"

namespace samestate {

/// The gradients of normalised linear attention.
template <class Scalar>
struct NormalisedGradients {
  Matrix<Scalar> q;  ///< [T, dk]
  Matrix<Scalar> k;  ///< [T, dk]
  Matrix<Scalar> v;  ///< [T, dv]
  NormalisedState<Scalar> initial_state;
};

/// For o_t = S_t^T q_t / n_t, n_t = z_t . q_t: the numerator receives do / n, the denominator -(do . o) / n.
/// Both are linear attention, the denominator's values being 1, so the state is [S z] and the reverse one
/// recurrence. d_o: [T, dv]; d_state: of the final state, both parts, or empty if nothing reads it. Throws
/// Error if a cotangent has another shape than its output.
template <class Scalar>
[[nodiscard]] NormalisedGradients<Scalar> linear_attention_normalised_backward(
    const Sequence<Scalar>& x, const NormalisedState<Scalar>& state, const Matrix<Scalar>& d_o,
    const NormalisedState<Scalar>& d_state = {}) {
  require_cotangents(x, HeadCotangents<Scalar>{d_o, d_state.S});
  const Index T = x.tokens();
  const Index dv = x.value_width();
  Sequence<Scalar> both = x;
  both.scale = Scalar(1);
  both.v.resize(T, dv + 1);
  both.v << x.v, Matrix<Scalar>::Ones(T, 1);
  both.initial_state.resize(x.key_width(), dv + 1);
  both.initial_state << state.S, state.z;
  const Matrix<Scalar> sums = recurrent<LinearAttention>(both).o;
  HeadCotangents<Scalar> d{Matrix<Scalar>(T, dv + 1), {}};
  for (Index t = 0; t < T; ++t) {
    const Scalar n = sums(t, dv);
    const Scalar along = d_o.row(t).cwiseProduct(sums.row(t).head(dv)).sum() / n;
    d.o.row(t).head(dv) = d_o.row(t) / n;
    d.o(t, dv) = -(along / n);
  }
  if (d_state.S.size() != 0) {
    d.state.resize(x.key_width(), dv + 1);
    d.state << d_state.S, d_state.z;
  }
  const HeadGradients<Scalar> g = recurrent_backward<LinearAttention>(both, d);
  return {g.q, g.k, g.v.leftCols(dv), {g.initial_state.leftCols(dv), g.initial_state.col(dv)}};
}

}  // namespace samestate
