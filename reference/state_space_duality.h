#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "reference/recurrence.h"
#include "reference/rounding_point.h"
#include "reference/selective_scan.h"

/// Mamba-2's state space duality (EQUATIONS 5.10), with one scalar rate A per head:
///   S_t = e^{Delta_t A} S_{t-1} + (Delta_t x_t) B_t^T;  y_t = S_t C_t + D x_t.
/// It is class C-GLA with q = C, k = B, v = Delta x, log gamma = Delta A (EQ-08).
namespace samestate {

namespace points {
inline constexpr PointRow kStateSpaceDualityRows[] = {
    {"scores", "C B^T of a chunk.", PointUse::product},
    {"read", "C times the state before the tokens.", PointUse::product},
    {"values", "The decayed scores of a chunk times Delta x.", PointUse::product},
    {"state", "(Delta x)^T times the decayed B of a chunk.", PointUse::product},
    {"chunk_read", "C times the state that is passed to a chunk.", PointUse::product},
};
inline constexpr PointTable state_space_duality{"state_space_duality", PointTier::equation,
                                                kStateSpaceDualityRows};
}  // namespace points

/// Inputs of one head: T tokens, P channels, N states.
template <class Scalar>
struct StateSpaceHead {
  Matrix<Scalar> x;              ///< [T, P]
  Vector<Scalar> delta;          ///< [T] time steps, after the softplus
  Scalar A{-1};                  ///< rate, negative
  Matrix<Scalar> B;              ///< [T, N]
  Matrix<Scalar> C;              ///< [T, N]
  Scalar skip{0};                ///< D
  Matrix<Scalar> initial_state;  ///< [P, N], column convention: the transpose of a Sequence's

  [[nodiscard]] Index tokens() const { return x.rows(); }
};

/// Outputs of one head, or of all heads side by side.
template <class Scalar>
struct StateSpaceOutput {
  Matrix<Scalar> y;      ///< [T, P] of one head; [T, H P] of all
  Matrix<Scalar> state;  ///< [P, N] after the last token; [H P, N] of all
};

/// Inputs of all heads of one sequence. Head h reads the B and C of group h / (H / G), so the heads of a
/// group are adjacent (interleaved, not tiled).
template <class Scalar>
struct StateSpaceHeads {
  Matrix<Scalar> x;              ///< [T, H P]
  Matrix<Scalar> delta;          ///< [T, H]
  Vector<Scalar> A;              ///< [H]
  Matrix<Scalar> B;              ///< [T, G N]
  Matrix<Scalar> C;              ///< [T, G N]
  Vector<Scalar> skip;           ///< [H]
  Matrix<Scalar> initial_state;  ///< [H P, N]
  Index groups = 1;              ///< G, divides H

  [[nodiscard]] Index heads() const { return A.size(); }

  /// Head h alone.
  [[nodiscard]] StateSpaceHead<Scalar> head(Index h) const {
    const Index P = x.cols() / heads();
    const Index N = B.cols() / groups;
    const Index group = h / (heads() / groups);
    return {x.middleCols(h * P, P),
            delta.col(h),
            A(h),
            B.middleCols(group * N, N),
            C.middleCols(group * N, N),
            skip(h),
            initial_state.middleRows(h * P, P)};
  }
};

namespace detail {

inline void require_state_space_extents(const char* name, Index rows, Index columns, Index need_rows,
                                        Index need_columns) {
  if (rows == need_rows && columns == need_columns) return;
  throw Error("state_space_duality: " + std::string(name) + " is " + std::to_string(rows) + " x " +
              std::to_string(columns) + ", needed " + std::to_string(need_rows) + " x " +
              std::to_string(need_columns));
}

}  // namespace detail

/// Throws Error, naming the tensor, unless all shapes agree.
template <class Scalar>
void require_state_space(const StateSpaceHead<Scalar>& x) {
  const Index T = x.tokens();
  const Index N = x.B.cols();
  detail::require_state_space_extents("delta", x.delta.size(), 1, T, 1);
  detail::require_state_space_extents("B", x.B.rows(), N, T, N);
  detail::require_state_space_extents("C", x.C.rows(), x.C.cols(), T, N);
  detail::require_state_space_extents("initial_state", x.initial_state.rows(), x.initial_state.cols(),
                                      x.x.cols(), N);
}

/// The same for all heads. Heads must divide the columns of x, and groups must divide the heads and the
/// columns of B.
template <class Scalar>
void require_state_space(const StateSpaceHeads<Scalar>& x) {
  const Index T = x.x.rows();
  const Index H = x.heads();
  if (H < 1 || x.x.cols() % H != 0 || x.groups < 1 || H % x.groups != 0 || x.B.cols() % x.groups != 0) {
    throw Error("state_space_duality: " + std::to_string(H) + " heads in " + std::to_string(x.groups) +
                " groups must divide x's " + std::to_string(x.x.cols()) + " columns and B's " +
                std::to_string(x.B.cols()) + ", and groups the heads");
  }
  detail::require_state_space_extents("delta", x.delta.rows(), x.delta.cols(), T, H);
  detail::require_state_space_extents("B", x.B.rows(), x.B.cols(), T, x.B.cols());
  detail::require_state_space_extents("C", x.C.rows(), x.C.cols(), T, x.B.cols());
  detail::require_state_space_extents("skip", x.skip.size(), 1, H, 1);
  detail::require_state_space_extents("initial_state", x.initial_state.rows(), x.initial_state.cols(),
                                      x.x.cols(), x.B.cols() / x.groups);
}

/// Evaluates every head by `run`, any form for one head. Throws Error if shapes disagree.
template <class Scalar, class Run>
[[nodiscard]] StateSpaceOutput<Scalar> state_space_heads(const StateSpaceHeads<Scalar>& x, Run&& run) {
  require_state_space(x);
  const Index P = x.x.cols() / x.heads();
  StateSpaceOutput<Scalar> out{Matrix<Scalar>(x.x.rows(), x.x.cols()), x.initial_state};
  for (Index h = 0; h < x.heads(); ++h) {
    const StateSpaceOutput<Scalar> head = run(x.head(h));
    out.y.middleCols(h * P, P) = head.y;
    out.state.middleRows(h * P, P) = head.state;
  }
  return out;
}

/// The head as class C-GLA, for the forms in reference/retention.h: their o is y without the skip, and their
/// state is the transpose of this one (EQ-08).
template <class Scalar>
[[nodiscard]] Sequence<Scalar> as_retention(const StateSpaceHead<Scalar>& x) {
  require_state_space(x);
  return {x.C,
          x.B,
          x.delta.asDiagonal() * x.x,
          x.delta * x.A,
          Vector<Scalar>::Ones(x.tokens()),
          Scalar(1),
          x.initial_state.transpose()};
}

/// One token, the update of decode: S [P, N] is carried over, row t of y [T, P] is written.
template <class Scalar, class Factors = PlainFactors>
void state_space_step(const StateSpaceHead<Scalar>& x, Index t, Matrix<Scalar>& S, Matrix<Scalar>& y) {
  const Scalar alpha = Factors::decay(x.delta(t), x.A);
  for (Index p = 0; p < S.rows(); ++p) {
    Scalar sum(0);
    for (Index n = 0; n < S.cols(); ++n) {
      S(p, n) = alpha * S(p, n) + x.delta(t) * x.x(t, p) * x.B(t, n);
      sum += S(p, n) * x.C(t, n);
    }
    y(t, p) = sum + x.skip * x.x(t, p);
  }
}

/// Token by token. T = 0 returns the initial state. Throws Error if shapes disagree.
template <class Scalar, class Factors = PlainFactors>
[[nodiscard]] StateSpaceOutput<Scalar> state_space_recurrent(const StateSpaceHead<Scalar>& x) {
  require_state_space(x);
  StateSpaceOutput<Scalar> out{Matrix<Scalar>(x.tokens(), x.x.cols()), x.initial_state};
  for (Index t = 0; t < x.tokens(); ++t) state_space_step<Scalar, Factors>(x, t, out.state, out.y);
  return out;
}

/// The quadratic dual over the whole sequence:
///   y = (C B^T o L) (Delta x) + e^G C S_0^T + D x,
/// where L_ij = e^{G_i - G_j} is the 1-semiseparable mask and G are the sums of Delta A. Throws Error if
/// shapes disagree.
template <class Scalar, class Factors = PlainFactors>
[[nodiscard]] StateSpaceOutput<Scalar> state_space_quadratic(const StateSpaceHead<Scalar>& x) {
  require_state_space(x);
  if (x.tokens() == 0) return {x.x, x.initial_state};
  const Vector<Scalar> g = x.delta * x.A;
  const Matrix<Scalar> L = Factors::between(g);
  const Vector<Scalar> e = Factors::from_start(g);
  const Matrix<Scalar> CB = matrix_product(x.C, x.B.transpose(), points::state_space_duality["scores"]);
  const Matrix<Scalar> M = CB.cwiseProduct(L);
  const Matrix<Scalar> v = x.delta.asDiagonal() * x.x;
  const Matrix<Scalar> from_start =
      matrix_product(x.C, x.initial_state.transpose(), points::state_space_duality["read"]);
  const Index last = x.tokens() - 1;
  const Matrix<Scalar> kept = L.row(last).transpose().asDiagonal() * x.B;
  return {
      matrix_product(M, v, points::state_space_duality["values"]) + e.asDiagonal() * from_start +
          x.skip * x.x,
      matrix_product(v.transpose(), kept, points::state_space_duality["state"]) + e(last) * x.initial_state};
}

/// In chunks, the last one possibly shorter, by the four steps of the public block decomposition: the
/// quadratic dual inside each chunk from a zero state; the state that each chunk leaves; these states passed
/// between chunks by the same masked sum, one level up; and what each chunk reads from the state before it.
/// Throws Error for chunk < 1 or if shapes disagree.
template <class Scalar>
[[nodiscard]] StateSpaceOutput<Scalar> state_space_chunked(const StateSpaceHead<Scalar>& x, Index chunk) {
  if (chunk < 1) throw Error("chunk=" + std::to_string(chunk) + ": a chunk holds at least 1 token");
  require_state_space(x);
  const Index T = x.tokens();
  const Index chunks = (T + chunk - 1) / chunk;
  const Vector<Scalar> g = x.delta * x.A;
  StateSpaceOutput<Scalar> out{Matrix<Scalar>(T, x.x.cols()), x.initial_state};
  std::vector<Matrix<Scalar>> left{x.initial_state};  // the states left before chunk 0, by chunk 0, 1, ..
  Vector<Scalar> passed = Vector<Scalar>::Zero(chunks + 1);  // log-decay through each of them
  for (Index c = 0; c < chunks; ++c) {
    const Index n = std::min(chunk, T - c * chunk);
    const StateSpaceOutput<Scalar> alone = state_space_quadratic<Scalar>(
        {x.x.middleRows(c * chunk, n), x.delta.segment(c * chunk, n), x.A, x.B.middleRows(c * chunk, n),
         x.C.middleRows(c * chunk, n), x.skip, Matrix<Scalar>::Zero(x.x.cols(), x.B.cols())});
    out.y.middleRows(c * chunk, n) = alone.y;
    left.push_back(alone.state);
    for (Index i = 0; i < n; ++i) passed(c + 1) += g(c * chunk + i);
  }
  const Matrix<Scalar> between = decay_between(passed);
  for (Index c = 0; c <= chunks; ++c) {
    Matrix<Scalar> before = Matrix<Scalar>::Zero(x.x.cols(), x.B.cols());
    for (Index m = 0; m <= c; ++m) before += between(c, m) * left[static_cast<std::size_t>(m)];
    if (c == chunks) {
      out.state = before;
      break;
    }
    const Index n = std::min(chunk, T - c * chunk);
    const Vector<Scalar> e = decay_from_start<Scalar>(g.segment(c * chunk, n));
    const Matrix<Scalar> read = matrix_product(x.C.middleRows(c * chunk, n), before.transpose(),
                                               points::state_space_duality["chunk_read"]);
    out.y.middleRows(c * chunk, n) += e.asDiagonal() * read;
  }
  return out;
}

}  // namespace samestate
