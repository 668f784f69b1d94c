#pragma once

#include "reference/recurrence.h"
#include "reference/rounding_point.h"

/// Linear attention (class C-LA), per head (g and beta are not read):
///   S <- S + k_t v_t^T;  o_t = scale S^T q_t.
namespace samestate {

namespace points {
inline constexpr PointRow kLinearAttentionRows[] = {
    {"chunk_scores", "q k^T of a chunk.", PointUse::product},
    {"chunk_read", "q S of a chunk.", PointUse::product, "chunk"},
    {"chunk_values", "The masked scores of a chunk times v.", PointUse::product, "chunk"},
    {"chunk_state", "k^T v of a chunk.", PointUse::product},
    {"causal_scores", "q k^T of a whole sequence that is masked.", PointUse::product},
    {"causal_values", "Its masked scores times v.", PointUse::product},
    {"scores", "q k^T without a mask.", PointUse::product},
    {"values", "Scores without a mask times v.", PointUse::product},
    {"state", "k^T v of a whole sequence.", PointUse::product},
    {"read", "q times k^T v of a whole sequence.", PointUse::product},
    {"normalised_scores", "q k^T of a chunk of the normalised form.", PointUse::product},
    {"normalised_read", "q S of a chunk of the normalised form.", PointUse::product, "normalised"},
    {"normalised_values", "The masked scores of a chunk of the normalised form times v.", PointUse::product,
     "normalised"},
    {"normalised_state", "k^T v of a chunk of the normalised form.", PointUse::product},
};
inline constexpr PointTable linear_attention{"linear_attention", PointTier::equation, kLinearAttentionRows};
}  // namespace points

struct LinearAttention {
  static constexpr bool gated = false;
  static constexpr bool delta = false;

  /// One token (LA-3, TTT-1).
  template <class Scalar, class V, class State, class U, class O>
  static void step(const Sequence<Scalar>& x, Index t, const V& v, State& S, U& u, O& o) {
    u = v;
    o = x.scale * decay_write_read(NoDecay{}, x.k.row(t), u, x.q.row(t), S);
  }

  /// One chunk (EQ-09): O = Q S + lower(Q K^T) V.
  template <class Scalar>
  [[nodiscard]] static Trajectory<Scalar> chunk(const Sequence<Scalar>& x) {
    const Matrix<Scalar>& S = x.initial_state;
    Trajectory<Scalar> out;
    out.delta = x.v;
    const Matrix<Scalar> P =
        lower<Scalar>(matrix_product(x.q, x.k.transpose(), points::linear_attention["chunk_scores"]), 0);
    out.o = x.scale * (matrix_product(x.q, S, points::linear_attention["chunk_read"]) +
                       matrix_product(P, x.v, points::linear_attention["chunk_values"]));
    out.state = S + matrix_product(x.k.transpose(), x.v, points::linear_attention["chunk_state"]);
    return out;
  }
};

/// The causal parallel form (LA-2): O = scale lower(Q K^T) V, from a zero state. [T, dv].
template <class Scalar>
[[nodiscard]] Matrix<Scalar> linear_attention_parallel(const Sequence<Scalar>& x) {
  const Matrix<Scalar> P =
      lower<Scalar>(matrix_product(x.q, x.k.transpose(), points::linear_attention["causal_scores"]), 0);
  return x.scale * matrix_product(P, x.v, points::linear_attention["causal_values"]);
}

/// Non-causal, scores first: O = scale (Q K^T) V (EQ-10, LA-1). [T, dv].
template <class Scalar>
[[nodiscard]] Matrix<Scalar> linear_attention_bidirectional_scores_first(const Sequence<Scalar>& x) {
  const Matrix<Scalar> scores = matrix_product(x.q, x.k.transpose(), points::linear_attention["scores"]);
  return x.scale * matrix_product(scores, x.v, points::linear_attention["values"]);
}

/// Non-causal, state first: O = scale Q (K^T V). This reassociation is valid only because there is no mask
/// (E-12). [T, dv].
template <class Scalar>
[[nodiscard]] Matrix<Scalar> linear_attention_bidirectional_state_first(const Sequence<Scalar>& x) {
  const Matrix<Scalar> state = matrix_product(x.k.transpose(), x.v, points::linear_attention["state"]);
  return x.scale * matrix_product(x.q, state, points::linear_attention["read"]);
}

/// State of the normalised form: the matrix of the numerator and the vector z = sum k of the denominator.
template <class Scalar>
struct NormalisedState {
  Matrix<Scalar> S;  ///< [dk, dv]
  Vector<Scalar> z;  ///< [dk]
};

/// Outputs and state of the normalised form.
template <class Scalar>
struct NormalisedTrajectory {
  Matrix<Scalar> o;  ///< [T, dv]
  NormalisedState<Scalar> state;
};

/// Normalised linear attention, token by token: o_t = S_t^T q_t / (z_t . q_t), z_t = z_{t-1} + k_t. The
/// denominator is part of the state (BUGS M60, M61). The caller's feature map makes q and k positive; a zero
/// denominator gives whatever the division gives.
template <class Scalar>
[[nodiscard]] NormalisedTrajectory<Scalar> linear_attention_normalised(const Sequence<Scalar>& x,
                                                                       NormalisedState<Scalar> state) {
  Matrix<Scalar> o(x.tokens(), x.value_width());
  for (Index t = 0; t < x.tokens(); ++t) {
    state.S += x.k.row(t).transpose() * x.v.row(t);
    state.z += x.k.row(t).transpose();
    const Scalar denominator = (x.q.row(t) * state.z)(0, 0);
    o.row(t) = x.q.row(t) * state.S / denominator;
  }
  return {std::move(o), std::move(state)};
}

/// The same in chunks: numerator and denominator of a chunk from lower(Q K^T) and the carried state.
template <class Scalar>
[[nodiscard]] NormalisedTrajectory<Scalar> linear_attention_normalised_chunked(
    const Sequence<Scalar>& x, Index chunk, NormalisedState<Scalar> state) {
  if (chunk < 1) throw Error("chunk=" + std::to_string(chunk) + ": a chunk holds at least 1 token");
  Matrix<Scalar> o(x.tokens(), x.value_width());
  for (Index t = 0; t < x.tokens(); t += chunk) {
    const Index L = std::min(chunk, x.tokens() - t);
    const Matrix<Scalar> q = x.q.middleRows(t, L);
    const Matrix<Scalar> k = x.k.middleRows(t, L);
    const Matrix<Scalar> v = x.v.middleRows(t, L);
    const Matrix<Scalar> P =
        lower<Scalar>(matrix_product(q, k.transpose(), points::linear_attention["normalised_scores"]), 0);
    const Matrix<Scalar> numerator = matrix_product(q, state.S, points::linear_attention["normalised_read"]) +
                                     matrix_product(P, v, points::linear_attention["normalised_values"]);
    const Vector<Scalar> denominator = q * state.z + P.rowwise().sum();
    for (Index i = 0; i < L; ++i) o.row(t + i) = numerator.row(i) / denominator(i);
    state.S += matrix_product(k.transpose(), v, points::linear_attention["normalised_state"]);
    state.z += k.colwise().sum().transpose();
  }
  return {std::move(o), std::move(state)};
}

}  // namespace samestate
