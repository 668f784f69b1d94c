#pragma once

#include "reference/recurrence.h"

/// Delta rule (class C-DELTA), per head, no decay (g is not read):
///   u_t = beta_t (v_t - S^T k_t);  S <- S + k_t u_t^T;  o_t = scale S^T q_t.
namespace samestate {

struct DeltaRule {
  static constexpr bool gated = false;
  static constexpr bool delta = true;

  /// One token (DELTA-2 with eta = beta, DELTA-8; DELTA-9 corrected).
  template <class Scalar, class V, class State, class U, class O>
  static void step(const Sequence<Scalar>& x, Index t, const V& v, State& S, U& u, O& o) {
    u = x.beta(t) * (v - decay_read(NoDecay{}, x.k.row(t), S));
    o = x.scale * decay_write_read(NoDecay{}, x.k.row(t), u, x.q.row(t), S);
  }

  /// One chunk: T = (I + strict_lower(beta K K^T))^-1, V' = T beta (V - K S) (EQUATIONS 5.5 at g = 0).
  template <class Scalar>
  [[nodiscard]] static Trajectory<Scalar> chunk(const Sequence<Scalar>& x) {
    const Matrix<Scalar>& S = x.initial_state;
    const Matrix<Scalar> KK = x.k * x.k.transpose();
    const Matrix<Scalar> A = lower<Scalar>(x.beta.asDiagonal() * KK, -1);
    const Matrix<Scalar> KS = x.k * S;
    const Matrix<Scalar> Z = x.beta.asDiagonal() * (x.v - KS);

    Trajectory<Scalar> out;
    out.delta = solve_unit_lower<Scalar>(A, Z);
    const Matrix<Scalar> P = lower<Scalar>(x.q * x.k.transpose(), 0);
    out.o = x.scale * (x.q * S + P * out.delta);
    out.state = S + x.k.transpose() * out.delta;
    return out;
  }
};

}  // namespace samestate
