#pragma once

#include <cmath>

#include "reference/recurrence.h"
#include "reference/rounding_point.h"

/// Retention with any scalar decay (class C-GLA), per head (beta is not read):
///   S <- e^{g_t} S + k_t v_t^T;  o_t = scale S^T q_t.
/// RetNet is the constant g_t = log(1 - 2^{-5-h}) of head h.
namespace samestate {

namespace points {
inline constexpr PointRow kRetentionRows[] = {
    {"scores", "q k^T of a chunk.", PointUse::product},
    {"read", "q S of a chunk.", PointUse::product},
    {"values", "The decayed scores of a chunk times v.", PointUse::product},
    {"state", "k^T times the decayed v of a chunk.", PointUse::product},
    {"whole_scores", "q k^T of a whole sequence.", PointUse::product},
    {"whole_values", "The decayed scores of a whole sequence times v.", PointUse::product},
    {"constant_scores", "q k^T of a whole sequence whose decay is constant.", PointUse::product},
    {"constant_values", "Its decayed scores times v.", PointUse::product},
};
inline constexpr PointTable retention{"retention", PointTier::equation, kRetentionRows};
}  // namespace points

struct Retention {
  static constexpr bool gated = true;
  static constexpr bool delta = false;

  /// One token (RET-1, TTT-5).
  template <class Scalar, class V, class State, class U, class O>
  static void step(const Sequence<Scalar>& x, Index t, const V& v, State& S, U& u, O& o) {
    using std::exp;
    u = v;
    const Scalar alpha = exp(x.g(t));
    o = x.scale * decay_write_read(alpha, x.k.row(t), u, x.q.row(t), S);
  }

  /// One chunk (EQ-07): O = e^G Q S + (Q K^T o Gamma) V.
  template <class Scalar>
  [[nodiscard]] static Trajectory<Scalar> chunk(const Sequence<Scalar>& x) {
    const Index L = x.tokens();
    const Matrix<Scalar>& S = x.initial_state;
    const Matrix<Scalar> gamma = decay_between(x.g);
    const Vector<Scalar> e = decay_from_start(x.g);

    Trajectory<Scalar> out;
    out.delta = x.v;
    const Matrix<Scalar> QK = matrix_product(x.q, x.k.transpose(), points::retention["scores"]);
    const Matrix<Scalar> P = QK.cwiseProduct(gamma);
    const Matrix<Scalar> QS = matrix_product(x.q, S, points::retention["read"]);
    out.o = x.scale * (e.asDiagonal() * QS + matrix_product(P, x.v, points::retention["values"]));
    const Matrix<Scalar> decayed = gamma.row(L - 1).transpose().asDiagonal() * x.v;
    out.state = e(L - 1) * S + matrix_product(x.k.transpose(), decayed, points::retention["state"]);
    return out;
  }
};

/// RetNet's decay of head h (EQUATIONS 5.11), gamma_h = 1 - 2^{-5-h}, as a log-decay.
template <class Scalar>
[[nodiscard]] Scalar retention_log_decay(Index head) {
  using std::log1p;
  return log1p(-Scalar(std::ldexp(1.0, static_cast<int>(-5 - head))));
}

/// The parallel form (RET-2): O = scale (Q K^T o Gamma) V over the whole sequence, from a zero state.
/// Gamma_ij is the product of the decays of steps j + 1 .. i (RET-3: row i is the query, and its own step
/// does not decay). Returns only o, [T, dv].
template <class Scalar>
[[nodiscard]] Matrix<Scalar> retention_parallel(const Sequence<Scalar>& x) {
  const Matrix<Scalar> QK = matrix_product(x.q, x.k.transpose(), points::retention["whole_scores"]);
  const Matrix<Scalar> P = QK.cwiseProduct(decay_between(x.g));
  return x.scale * matrix_product(P, x.v, points::retention["whole_values"]);
}

/// The parallel form with a constant decay: Gamma_ij = gamma^{i-j}, evaluated as powers and not as sums of
/// logarithms.
template <class Scalar>
[[nodiscard]] Matrix<Scalar> retention_parallel_constant(const Sequence<Scalar>& x, const Scalar& gamma) {
  Matrix<Scalar> P = matrix_product(x.q, x.k.transpose(), points::retention["constant_scores"]);
  for (Index i = 0; i < P.rows(); ++i) {
    Scalar power(1);
    for (Index j = i; j >= 0; --j) {
      P(i, j) *= power;
      power *= gamma;
    }
    for (Index j = i + 1; j < P.cols(); ++j) P(i, j) = Scalar(0);
  }
  return x.scale * matrix_product(P, x.v, points::retention["constant_values"]);
}

}  // namespace samestate
