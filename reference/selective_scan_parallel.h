#pragma once

#include "reference/selective_scan.h"

/// The selective scan without its serial chain (EQ-17): by both associative scans, and in chunks.
namespace samestate {

/// The step of every token as an elementwise map of the state; column d N + n is that of h[d, n]. [T, D N].
template <class Scalar, class Factors = PlainFactors>
[[nodiscard]] DiagonalMaps<Scalar> selective_scan_maps(const SelectiveScan<Scalar>& x, Discretisation mode) {
  const Index N = x.states();
  DiagonalMaps<Scalar> maps{Matrix<Scalar>(x.tokens(), x.channels() * N),
                            Matrix<Scalar>(x.tokens(), x.channels() * N)};
  for (Index t = 0; t < x.tokens(); ++t) {
    for (Index d = 0; d < x.channels(); ++d) {
      for (Index n = 0; n < N; ++n) {
        maps.a(t, d * N + n) = Factors::decay(x.delta(t, d), x.A(d, n));
        maps.b(t, d * N + n) = Factors::input(x.delta(t, d), x.A(d, n), mode) * x.B(t, n) * x.u(t, d);
      }
    }
  }
  return maps;
}

/// Applies the reads, the skip and the gate to given states h, [T, D N].
template <class Scalar>
[[nodiscard]] SelectiveScanOutput<Scalar> selective_scan_outputs(const SelectiveScan<Scalar>& x,
                                                                 const Matrix<Scalar>& h) {
  const Index T = x.tokens();
  const Index D = x.channels();
  const Index N = x.states();
  SelectiveScanOutput<Scalar> out{Matrix<Scalar>(T, D), Matrix<Scalar>(T, D), x.initial_state};
  for (Index d = 0; d < D; ++d) {
    for (Index t = 0; t < T; ++t) {
      Scalar y = x.skip.size() != 0 ? Scalar(x.skip(d) * x.u(t, d)) : Scalar(0);
      for (Index n = 0; n < N; ++n) y += x.C(t, n) * h(t, d * N + n);
      out.y(t, d) = y;
    }
    for (Index n = 0; T > 0 && n < N; ++n) out.state(d, n) = h(T - 1, d * N + n);
  }
  out.out = x.gated() ? Matrix<Scalar>(out.y.cwiseProduct(silu(x.z))) : out.y;
  return out;
}

/// All states from the maps composed by `scan`, hillis_steele_scan or blelloch_scan. Throws Error if shapes
/// disagree.
template <class Factors = PlainFactors, class Scalar, class Scan>
[[nodiscard]] SelectiveScanOutput<Scalar> selective_scan_associative(const SelectiveScan<Scalar>& x,
                                                                     Discretisation mode, Scan&& scan) {
  require_selective_scan(x);
  const DiagonalMaps<Scalar> prefix = scan(selective_scan_maps<Scalar, Factors>(x, mode));
  const Index N = x.states();
  Matrix<Scalar> h(x.tokens(), x.channels() * N);
  for (Index t = 0; t < x.tokens(); ++t) {
    for (Index i = 0; i < h.cols(); ++i) {
      h(t, i) = prefix.a(t, i) * x.initial_state(i / N, i % N) + prefix.b(t, i);
    }
  }
  return selective_scan_outputs(x, h);
}

template <class Scalar>
[[nodiscard]] SelectiveScanOutput<Scalar> selective_scan_hillis_steele(const SelectiveScan<Scalar>& x,
                                                                       Discretisation mode) {
  return selective_scan_associative(x, mode, hillis_steele_scan<Scalar>);
}

template <class Scalar, class Factors = PlainFactors>
[[nodiscard]] SelectiveScanOutput<Scalar> selective_scan_blelloch(const SelectiveScan<Scalar>& x,
                                                                  Discretisation mode) {
  return selective_scan_associative<Factors>(x, mode, blelloch_scan<Scalar>);
}

/// Chunk by chunk, the last one possibly shorter. Inside a chunk every state is the decayed sum of all writes
/// before it:
///   h_i = e^{G_i} h_0 + sum_{j <= i} e^{G_i - G_j} b_j,  G the sums of Delta A.
/// Only differences <= 0 are exponentiated (EQUATIONS 8.3). Throws Error for chunk < 1 or if shapes disagree.
template <class Scalar>
[[nodiscard]] SelectiveScanOutput<Scalar> selective_scan_chunked(const SelectiveScan<Scalar>& x,
                                                                 Discretisation mode, Index chunk) {
  if (chunk < 1) throw Error("chunk=" + std::to_string(chunk) + ": a chunk holds at least 1 token");
  require_selective_scan(x);
  const Index N = x.states();
  const Matrix<Scalar> b = selective_scan_maps(x, mode).b;
  Matrix<Scalar> h(x.tokens(), x.channels() * N);
  for (Index i = 0; i < h.cols(); ++i) {
    Scalar carried = x.initial_state(i / N, i % N);
    for (Index begin = 0; begin < x.tokens(); begin += chunk) {
      const Index n = std::min(chunk, x.tokens() - begin);
      const Vector<Scalar> g = x.delta.col(i / N).segment(begin, n) * x.A(i / N, i % N);
      const Vector<Scalar> written = decay_between(g) * b.col(i).segment(begin, n);
      h.col(i).segment(begin, n) = decay_from_start(g) * carried + written;
      carried = h(begin + n - 1, i);
    }
  }
  return selective_scan_outputs(x, h);
}

}  // namespace samestate
