#pragma once

#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "reference/backward/gates.h"
#include "reference/backward/reverse_sweep.h"
#include "reference/selective_scan.h"

/// The backward pass of the selective scan, token by token from the last to the first, channel d, state n:
///   forward   a = e^{Delta A};  f = Delta, or (a - 1) / A;  h_t = a h_{t-1} + f B u;  y = C . h_t + D u
///   reverse   dh <- dh + dy C;  dC = sum_d dy h_t;  df = dh B u;  dB = sum_d dh f u;
///             du = sum_n dh f B + D dy;  da = dh h_{t-1};  dDelta = sum_n (da a A + df df/dDelta);
///             dA = sum_t (da a Delta + df df/dA);  dh <- a dh
/// and behind the gate, out = y silu(z): dy = dout silu(z), dz = dout y silu'(z).
namespace samestate {

/// The gradients have the shapes of a SelectiveScan; `skip` and `z` are empty where the call has none.
template <class Scalar>
using SelectiveScanGradients = SelectiveScan<Scalar>;

/// The derivatives of input_factor by Delta and by A.
template <class Scalar>
struct InputFactorSlopes {
  Scalar delta;
  Scalar A;
};

/// The derivatives of Delta are 1 and 0. Those of (e^x - 1) / A with x = Delta A are e^x and Delta^2 s(x)
/// with s(x) = (e^x - (e^x - 1) / x) / x. Near 0 all digits of s would cancel, so for |x| < 1 it is the
/// series sum_{n>=1} n x^{n-1} / (n + 1)!, whose terms fall below any working precision here within 100.
template <class Scalar>
[[nodiscard]] InputFactorSlopes<Scalar> input_factor_slopes(const Scalar& delta, const Scalar& A,
                                                            Discretisation mode) {
  using std::exp;
  using std::expm1;
  if (mode == Discretisation::euler) return {Scalar(1), Scalar(0)};
  const Scalar x = delta * A;
  const Scalar e = exp(x);
  if (!(x > Scalar(-1) && x < Scalar(1))) {
    const Scalar f = expm1(x) / A;
    return {e, (delta * e - f) / A};
  }
  // Terms up to the 24th decide all digits of a double.
  constexpr int kTerms = std::numeric_limits<Scalar>::digits10 > 18 ? 100 : 24;
  Scalar rest(0);
  for (int n = kTerms; n >= 2; --n) {
    // Horner from the last term; a term is the one before it times x n / ((n - 1) (n + 1)).
    rest = x * Scalar(double(n)) / Scalar(double((n - 1) * (n + 1))) * (Scalar(1) + rest);
  }
  return {e, delta * delta * (Scalar(1) + rest) / Scalar(2)};
}

/// The factors of a step and their derivatives, from which the backward pass is made. An evaluation that carries errors
/// gives its own (PlainFactors).
struct PlainSlopes : PlainFactors {
  template <class Scalar>
  [[nodiscard]] static InputFactorSlopes<Scalar> slopes(const Scalar& delta, const Scalar& A,
                                                        Discretisation mode) {
    return input_factor_slopes(delta, A, mode);
  }
};

/// For Delta = softplus(dt + bias), [T, D]: ddt = dDelta sigma(dt + bias).
template <class Scalar>
[[nodiscard]] Matrix<Scalar> time_steps_backward(const Matrix<Scalar>& dt, const Vector<Scalar>& bias,
                                                 const Matrix<Scalar>& d_delta) {
  Matrix<Scalar> d(dt.rows(), dt.cols());
  for (Index t = 0; t < dt.rows(); ++t) {
    for (Index i = 0; i < dt.cols(); ++i) d(t, i) = d_delta(t, i) * logistic(Scalar(dt(t, i) + bias(i)));
  }
  return d;
}

/// The cotangents of the outputs of a scan.
template <class Scalar>
struct SelectiveScanCotangents {
  Matrix<Scalar> out;    ///< [T, D] of `out`, behind the gate if there is one
  Matrix<Scalar> state;  ///< [D, N] of the final state, or 0 x 0 if nothing reads it
};

namespace detail {

/// The state after token t. before: [D, N] the state before it.
template <class Scalar, class Factors>
Matrix<Scalar> selective_scan_advance(const SelectiveScan<Scalar>& x, Index t, Discretisation mode,
                                      const Matrix<Scalar>& before) {
  Matrix<Scalar> h = before;
  for (Index d = 0; d < x.channels(); ++d) {
    const Scalar delta = x.delta(t, d);
    for (Index n = 0; n < x.states(); ++n) {
      const Scalar A = x.A(d, n);
      h(d, n) = Factors::decay(delta, A) * h(d, n) + Factors::input(delta, A, mode) * x.B(t, n) * x.u(t, d);
    }
  }
  return h;
}

/// One token of the reverse scan. before: [D, N] the state before the token; dh: [D, N] is carried.
template <class Scalar, class Factors>
void selective_scan_reverse_step(const SelectiveScan<Scalar>& x, Index t, Discretisation mode,
                                 const Matrix<Scalar>& before, const Matrix<Scalar>& d_out,
                                 Matrix<Scalar>& dh, SelectiveScanGradients<Scalar>& out) {
  for (Index d = 0; d < x.channels(); ++d) {
    const Scalar delta = x.delta(t, d);
    const Scalar u = x.u(t, d);
    const Scalar dy = x.gated() ? Scalar(d_out(t, d) * silu(x.z(t, d))) : d_out(t, d);
    Scalar y(0), du(0), d_delta(0);
    for (Index n = 0; n < x.states(); ++n) {
      const Scalar A = x.A(d, n);
      const Scalar a = Factors::decay(delta, A);
      const Scalar f = Factors::input(delta, A, mode);
      const InputFactorSlopes<Scalar> slope = Factors::slopes(delta, A, mode);
      const Scalar h = a * before(d, n) + f * x.B(t, n) * u;
      y += x.C(t, n) * h;
      dh(d, n) += dy * x.C(t, n);
      out.C(t, n) += dy * h;
      const Scalar df = dh(d, n) * x.B(t, n) * u;
      out.B(t, n) += dh(d, n) * f * u;
      du += dh(d, n) * f * x.B(t, n);
      const Scalar along = dh(d, n) * a * before(d, n);  // da a
      d_delta += along * A + df * slope.delta;
      out.A(d, n) += along * delta + df * slope.A;
      dh(d, n) *= a;
    }
    if (x.skip.size() != 0) {
      y += x.skip(d) * u;
      du += x.skip(d) * dy;
      out.skip(d) += dy * u;
    }
    out.u(t, d) = du;
    out.delta(t, d) = d_delta;
    if (x.gated()) out.z(t, d) = d_out(t, d) * y * silu_slope(x.z(t, d));
  }
}

}  // namespace detail

/// The gradients of every input, the initial state's in `initial_state`. States are kept about sqrt(T) tokens
/// apart. Throws Error if shapes disagree.
template <class Scalar, class Factors = PlainSlopes>
[[nodiscard]] SelectiveScanGradients<Scalar> selective_scan_backward(
    const SelectiveScan<Scalar>& x, Discretisation mode, const SelectiveScanCotangents<Scalar>& d) {
  require_selective_scan(x);
  const Index T = x.tokens();
  const Index D = x.channels();
  const Index N = x.states();
  const bool state_fits = d.state.size() == 0 || (d.state.rows() == D && d.state.cols() == N);
  if (d.out.rows() != T || d.out.cols() != D || !state_fits) {
    throw Error("selective_scan: the cotangent of the output is " + std::to_string(d.out.rows()) + " x " +
                std::to_string(d.out.cols()) + ", needed " + std::to_string(T) + " x " + std::to_string(D) +
                "; that of the state " + std::to_string(d.state.rows()) + " x " +
                std::to_string(d.state.cols()) + ", needed " + std::to_string(D) + " x " + std::to_string(N));
  }
  const auto zero = [](Index rows, Index columns) {
    return Matrix<Scalar>(Matrix<Scalar>::Zero(rows, columns));
  };
  SelectiveScanGradients<Scalar> out{zero(T, D),
                                     zero(T, D),
                                     zero(D, N),
                                     zero(T, N),
                                     zero(T, N),
                                     Vector<Scalar>::Zero(x.skip.size()),
                                     zero(x.z.rows(), x.z.cols()),
                                     zero(D, N)};
  if (d.state.size() != 0) out.initial_state = d.state;
  const auto advance = [&](Index t, const Matrix<Scalar>& h) {
    return detail::selective_scan_advance<Scalar, Factors>(x, t, mode, h);
  };
  const auto reverse = [&](Index t, const Matrix<Scalar>& h) {
    detail::selective_scan_reverse_step<Scalar, Factors>(x, t, mode, h, d.out, out.initial_state, out);
  };
  reverse_sweep(T, x.initial_state, advance, reverse);
  return out;
}

}  // namespace samestate
