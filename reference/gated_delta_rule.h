#pragma once

#include <cmath>
#include <vector>

#include "reference/recurrence.h"

/// Gated delta rule (class C-GDN of the ledger), per head:
///   S <- e^{g_t} S;  u_t = beta_t (v_t - S^T k_t);  S <- S + k_t u_t^T;  o_t = scale S^T q_t.
namespace samestate {

struct GatedDeltaRule {
  static constexpr bool gated = true;
  static constexpr bool delta = true;

  /// One token (GDN-35..39, DEND-31 corrected). v, u, o: [1, n] value columns; S: [dk, n].
  template <class Scalar, class V, class State, class U, class O>
  static void step(const Sequence<Scalar>& x, Index t, const V& v, State& S, U& u, O& o) {
    using std::exp;
    const Scalar alpha = exp(x.g(t));                        // GDN-16
    u = x.beta(t) * (v - decay_read(alpha, x.k.row(t), S));  // GDN-35, GDN-36, GDN-37
    // GDN-38, GDN-39: reads after the write
    o = x.scale * decay_write_read(NoDecay{}, x.k.row(t), u, x.q.row(t), S);
  }

  /// One chunk in WY form (EQUATIONS 5.5, EQ-02).
  template <class Scalar>
  [[nodiscard]] static Trajectory<Scalar> chunk(const Sequence<Scalar>& x) {
    const Index L = x.tokens();
    const Matrix<Scalar>& S = x.initial_state;
    const Matrix<Scalar> D = decay_between(x.g);
    const Vector<Scalar> e = decay_from_start(x.g);

    const Matrix<Scalar> KK = x.k * x.k.transpose();
    const Matrix<Scalar> A = lower<Scalar>(x.beta.asDiagonal() * KK.cwiseProduct(D), -1);
    const Matrix<Scalar> betaV = x.beta.asDiagonal() * x.v;
    const Matrix<Scalar> betaK = x.beta.cwiseProduct(e).asDiagonal() * x.k;
    const Matrix<Scalar> U = solve_unit_lower<Scalar>(A, betaV);  // T diag(beta) V
    const Matrix<Scalar> W = solve_unit_lower<Scalar>(A, betaK);  // T diag(beta e^G) K

    Trajectory<Scalar> out;
    out.delta = U - W * S;  // V'
    const Matrix<Scalar> QK = x.q * x.k.transpose();
    const Matrix<Scalar> P = lower<Scalar>(QK.cwiseProduct(D), 0);
    const Matrix<Scalar> QS = x.q * S;
    out.o = x.scale * (e.asDiagonal() * QS + P * out.delta);
    const Matrix<Scalar> decayed = D.row(L - 1).transpose().asDiagonal() * out.delta;
    out.state = e(L - 1) * S + x.k.transpose() * decayed;
    return out;
  }
};

/// The same rule in column convention (GDN-49), S^c = S^T [dv, dk]: S^c <- a S^c (I - b k k^T) + b v k^T.
/// EQ-01.
template <class Scalar>
[[nodiscard]] Trajectory<Scalar> gated_delta_rule_column(const Sequence<Scalar>& x) {
  using std::exp;
  Trajectory<Scalar> out = empty_trajectory(x);
  Matrix<Scalar> S = x.initial_state.transpose();
  const Matrix<Scalar> I = Matrix<Scalar>::Identity(x.key_width(), x.key_width());
  for (Index t = 0; t < x.tokens(); ++t) {
    const Vector<Scalar> k = x.k.row(t).transpose();
    const Vector<Scalar> v = x.v.row(t).transpose();
    const Matrix<Scalar> decayed = Scalar(exp(x.g(t))) * S;
    out.delta.row(t) = (x.beta(t) * (v - decayed * k)).transpose();
    const Matrix<Scalar> write = x.beta(t) * v * k.transpose();
    const Matrix<Scalar> keep = I - x.beta(t) * k * k.transpose();
    S = decayed * keep + write;
    out.o.row(t) = (x.scale * (S * x.q.row(t).transpose()).eval()).transpose();
  }
  out.state = S.transpose();
  return out;
}

/// The expanded form (GDN-50), column convention: S^c <- a S^c + b (v - a S^c k) k^T. EQ-01.
template <class Scalar>
[[nodiscard]] Trajectory<Scalar> gated_delta_rule_expanded(const Sequence<Scalar>& x) {
  using std::exp;
  Trajectory<Scalar> out = empty_trajectory(x);
  Matrix<Scalar> S = x.initial_state.transpose();
  for (Index t = 0; t < x.tokens(); ++t) {
    const Scalar a = exp(x.g(t));
    const Vector<Scalar> k = x.k.row(t).transpose();
    const Vector<Scalar> u = x.beta(t) * (x.v.row(t).transpose() - a * (S * k));
    const Matrix<Scalar> write = u * k.transpose();
    S = a * S + write;
    out.delta.row(t) = u.transpose();
    out.o.row(t) = (x.scale * (S * x.q.row(t).transpose()).eval()).transpose();
  }
  out.state = S.transpose();
  return out;
}

/// An affine map of the state, S |-> A S + B. A: [dk, dk], B: [dk, dv].
template <class Scalar>
struct AffineMap {
  Matrix<Scalar> A;
  Matrix<Scalar> B;
};

/// Applies `earlier` first, then `later`. The maps do not commute (EQ-04, BUGS M89).
template <class Scalar>
[[nodiscard]] AffineMap<Scalar> then(const AffineMap<Scalar>& earlier, const AffineMap<Scalar>& later) {
  return {later.A * earlier.A, later.A * earlier.B + later.B};
}

/// The step of token t as a map: A = a (I - b k k^T), B = b k v^T (EQ-04).
template <class Scalar>
[[nodiscard]] AffineMap<Scalar> gated_delta_rule_map(const Sequence<Scalar>& x, Index t) {
  using std::exp;
  const Vector<Scalar> k = x.k.row(t).transpose();
  const Matrix<Scalar> keep =
      Matrix<Scalar>::Identity(x.key_width(), x.key_width()) - x.beta(t) * k * k.transpose();
  return {Scalar(exp(x.g(t))) * keep, x.beta(t) * k * x.v.row(t)};
}

/// All states by an inclusive parallel scan (Hillis-Steele) over the maps, followed by the reads (EQ-04), in
/// O(T log T dk^3).
template <class Scalar>
[[nodiscard]] Trajectory<Scalar> gated_delta_rule_scan(const Sequence<Scalar>& x) {
  using std::exp;
  const Index T = x.tokens();
  std::vector<AffineMap<Scalar>> prefix;
  for (Index t = 0; t < T; ++t) prefix.push_back(gated_delta_rule_map(x, t));
  for (Index reach = 1; reach < T; reach *= 2) {
    std::vector<AffineMap<Scalar>> wider = prefix;
    for (Index t = reach; t < T; ++t) {
      wider[static_cast<std::size_t>(t)] =
          then(prefix[static_cast<std::size_t>(t - reach)], prefix[static_cast<std::size_t>(t)]);
    }
    prefix = std::move(wider);
  }
  Trajectory<Scalar> out = empty_trajectory(x);
  Matrix<Scalar> before = x.initial_state;
  for (Index t = 0; t < T; ++t) {
    const AffineMap<Scalar>& map = prefix[static_cast<std::size_t>(t)];
    const Matrix<Scalar> after = map.A * x.initial_state + map.B;
    const Matrix<Scalar> decayed = Scalar(exp(x.g(t))) * before;
    out.delta.row(t) = x.beta(t) * (x.v.row(t) - x.k.row(t) * decayed);
    out.o.row(t) = x.scale * (x.q.row(t) * after).eval();
    before = after;
  }
  out.state = before;
  return out;
}

}  // namespace samestate
