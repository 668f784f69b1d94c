#pragma once

#include <algorithm>
#include <cmath>

#include "reference/activations.h"
#include "reference/associative_scan.h"
#include "reference/recurrence.h"

/// Mamba's selective scan (class C-SSM; EQUATIONS 5.10), channel d, state n:
///   h_t = exp(Delta_t A) h_{t-1} + Bbar_t u_t;  y_t = sum_n C_t[n] h_t[n] + D u_t;  out_t = y_t silu(z_t).
/// B and C are those of the token and serve all channels.
namespace samestate {

/// How B becomes Bbar. The decay is exp(Delta A) in both cases, but the two are different systems (E-13).
enum class Discretisation {
  euler,           ///< Bbar = Delta B, what the public kernels compute; unbounded in Delta
  zero_order_hold  ///< Bbar = (exp(Delta A) - 1) / A B, what the paper states; at most -1/A
};

/// Inputs of one sequence: T tokens, D channels, N states per channel.
template <class Scalar>
struct SelectiveScan {
  Matrix<Scalar> u;              ///< [T, D]
  Matrix<Scalar> delta;          ///< [T, D] time steps, after the softplus
  Matrix<Scalar> A;              ///< [D, N] rates, negative
  Matrix<Scalar> B;              ///< [T, N]
  Matrix<Scalar> C;              ///< [T, N]
  Vector<Scalar> skip;           ///< [D], or empty if there is no skip
  Matrix<Scalar> z;              ///< [T, D], or 0 x 0 if there is no gate
  Matrix<Scalar> initial_state;  ///< [D, N]

  [[nodiscard]] Index tokens() const { return u.rows(); }
  [[nodiscard]] Index channels() const { return u.cols(); }
  [[nodiscard]] Index states() const { return A.cols(); }
  [[nodiscard]] bool gated() const { return z.size() != 0; }

  /// The tokens [begin, begin + n), starting from another state.
  [[nodiscard]] SelectiveScan slice(Index begin, Index n, Matrix<Scalar> state) const {
    return {u.middleRows(begin, n),
            delta.middleRows(begin, n),
            A,
            B.middleRows(begin, n),
            C.middleRows(begin, n),
            skip,
            gated() ? Matrix<Scalar>(z.middleRows(begin, n)) : z,
            std::move(state)};
  }
};

/// Outputs of one sequence.
template <class Scalar>
struct SelectiveScanOutput {
  Matrix<Scalar> y;      ///< [T, D] with the skip, before the gate
  Matrix<Scalar> out;    ///< [T, D] y silu(z), or y if there is no gate
  Matrix<Scalar> state;  ///< [D, N] after the last token
};

/// A = -exp(A_log) (SSM-7). [D, N] -> [D, N], or a column [H, 1] for the scalar rates of heads.
template <class Scalar>
[[nodiscard]] Matrix<Scalar> decay_rates(const Matrix<Scalar>& A_log) {
  using std::exp;
  return A_log.unaryExpr([](const Scalar& a) { return Scalar(-exp(a)); });
}

/// Delta = softplus(dt + bias). dt: [T, D], bias: [D] -> [T, D]. Throws Error if the sizes disagree.
template <class Scalar>
[[nodiscard]] Matrix<Scalar> time_steps(const Matrix<Scalar>& dt, const Vector<Scalar>& bias) {
  if (bias.size() != dt.cols()) {
    throw Error("time_steps: dt has " + std::to_string(dt.cols()) + " columns, the bias " +
                std::to_string(bias.size()));
  }
  Matrix<Scalar> delta(dt.rows(), dt.cols());
  for (Index t = 0; t < dt.rows(); ++t) {
    for (Index d = 0; d < dt.cols(); ++d) delta(t, d) = softplus(Scalar(dt(t, d) + bias(d)));
  }
  return delta;
}

/// e^{Delta A}, the decay of one step, the same for both discretisations.
template <class Scalar>
[[nodiscard]] Scalar step_decay(const Scalar& delta, const Scalar& A) {
  using std::exp;
  return exp(Scalar(delta * A));
}

/// The factor of B u: Delta, or (exp(Delta A) - 1) / A, which tends to Delta as Delta A -> 0. Near zero the
/// quotient is taken by Delta A, whose rounding then cancels; far from it by A, since Delta A may overflow
/// (EQUATIONS 8.3).
template <class Scalar>
[[nodiscard]] Scalar input_factor(const Scalar& delta, const Scalar& A, Discretisation mode) {
  using std::expm1;
  if (mode == Discretisation::euler) return delta;
  const Scalar x = delta * A;
  if (x == Scalar(0)) return delta;
  if (x > Scalar(-1) && x < Scalar(1)) return delta * Scalar(expm1(x) / x);
  return expm1(x) / A;
}

/// The exponentials of a state space. Its forms take them as an argument, because an evaluation that carries
/// errors has better error bounds for them as a whole than for their parts
/// (oracles/systems/state_space_forms.h).
struct PlainFactors {
  template <class Scalar>
  [[nodiscard]] static Scalar decay(const Scalar& delta, const Scalar& A) {
    return step_decay(delta, A);
  }
  template <class Scalar>
  [[nodiscard]] static Scalar input(const Scalar& delta, const Scalar& A, Discretisation mode) {
    return input_factor(delta, A, mode);
  }
  /// As decay_between and decay_from_start of reference/recurrence.h.
  template <class Scalar>
  [[nodiscard]] static Matrix<Scalar> between(const Vector<Scalar>& g) {
    return decay_between(g);
  }
  template <class Scalar>
  [[nodiscard]] static Vector<Scalar> from_start(const Vector<Scalar>& g) {
    return decay_from_start(g);
  }
};

/// Throws Error, naming the tensor, unless all shapes agree.
template <class Scalar>
void require_selective_scan(const SelectiveScan<Scalar>& x) {
  const auto need = [](const char* name, const auto& m, Index rows, Index columns) {
    if (m.rows() == rows && m.cols() == columns) return;
    throw Error("selective_scan: " + std::string(name) + " is " + std::to_string(m.rows()) + " x " +
                std::to_string(m.cols()) + ", needed " + std::to_string(rows) + " x " +
                std::to_string(columns));
  };
  const Index T = x.tokens();
  const Index D = x.channels();
  const Index N = x.states();
  need("delta", x.delta, T, D);
  need("A", x.A, D, N);
  need("B", x.B, T, N);
  need("C", x.C, T, N);
  if (x.skip.size() != 0) need("skip", x.skip, D, 1);
  if (x.gated()) need("z", x.z, T, D);
  need("initial_state", x.initial_state, D, N);
}

/// One token, the update of decode: h [D, N] is carried over, row t of y and out is written.
template <class Scalar, class Factors = PlainFactors>
void selective_scan_step(const SelectiveScan<Scalar>& x, Index t, Discretisation mode, Matrix<Scalar>& h,
                         SelectiveScanOutput<Scalar>& out) {
  for (Index d = 0; d < x.channels(); ++d) {
    const Scalar& delta = x.delta(t, d);
    Scalar y(0);
    for (Index n = 0; n < x.states(); ++n) {
      const Scalar& A = x.A(d, n);
      h(d, n) = Factors::decay(delta, A) * h(d, n) + Factors::input(delta, A, mode) * x.B(t, n) * x.u(t, d);
      y += x.C(t, n) * h(d, n);
    }
    out.y(t, d) = x.skip.size() != 0 ? Scalar(y + x.skip(d) * x.u(t, d)) : y;
    out.out(t, d) = x.gated() ? Scalar(out.y(t, d) * silu(x.z(t, d))) : out.y(t, d);
  }
}

/// Token by token. T = 0 returns the initial state. Throws Error if shapes disagree.
template <class Scalar, class Factors = PlainFactors>
[[nodiscard]] SelectiveScanOutput<Scalar> selective_scan_recurrent(const SelectiveScan<Scalar>& x,
                                                                   Discretisation mode) {
  require_selective_scan(x);
  SelectiveScanOutput<Scalar> out{Matrix<Scalar>(x.tokens(), x.channels()),
                                  Matrix<Scalar>(x.tokens(), x.channels()), x.initial_state};
  for (Index t = 0; t < x.tokens(); ++t) selective_scan_step<Scalar, Factors>(x, t, mode, out.state, out);
  return out;
}

}  // namespace samestate
