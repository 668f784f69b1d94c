#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "reference/error.h"
#include "reference/rounding_point.h"
#include "reference/sequence.h"
#include "reference/state_passes.h"

/// The ways of running a system whose state is a matrix, written once for all systems. A `System` provides
/// its equations:
///   System::step(x, t, v, S, u, o)   one token, on any block of value columns
///   System::chunk(x)                 all tokens of x at once, from x.initial_state
/// Every form returns the same Trajectory up to rounding; that is the law the project is named after.
namespace samestate {

/// Value columns that `recurrent` handles at once. State column j depends on value column j alone, so a block
/// of columns runs through all tokens by itself, and its part of the state stays in the L1 cache.
inline constexpr Index kColumnBlock = 32;

namespace detail {

template <class System, class Scalar, int Columns>
void recurrent_columns(const Sequence<Scalar>& x, Index column, Index columns, Trajectory<Scalar>& out) {
  Eigen::Matrix<Scalar, Eigen::Dynamic, Columns, Eigen::RowMajor> S =
      x.initial_state.middleCols(column, columns);
  for (Index t = 0; t < x.tokens(); ++t) {
    const Eigen::Matrix<Scalar, 1, Columns, Eigen::RowMajor> v = x.v.row(t).segment(column, columns);
    Eigen::Matrix<Scalar, 1, Columns, Eigen::RowMajor> u(columns);
    Eigen::Matrix<Scalar, 1, Columns, Eigen::RowMajor> o(columns);
    System::step(x, t, v, S, u, o);
    out.delta.row(t).segment(column, columns) = u;
    out.o.row(t).segment(column, columns) = o;
  }
  out.state.middleCols(column, columns) = S;
}

}  // namespace detail

/// A trajectory with room for the outputs of x.
template <class Scalar>
[[nodiscard]] Trajectory<Scalar> empty_trajectory(const Sequence<Scalar>& x) {
  return {Matrix<Scalar>(x.tokens(), x.value_width()), Matrix<Scalar>(x.tokens(), x.value_width()),
          x.initial_state};
}

/// Token by token. T = 0 returns the initial state.
template <class System, class Scalar>
[[nodiscard]] Trajectory<Scalar> recurrent(const Sequence<Scalar>& x) {
  Trajectory<Scalar> out = empty_trajectory(x);
  const Index whole = x.value_width() / kColumnBlock * kColumnBlock;
  for (Index c = 0; c < whole; c += kColumnBlock) {
    detail::recurrent_columns<System, Scalar, kColumnBlock>(x, c, kColumnBlock, out);
  }
  if (whole < x.value_width()) {
    detail::recurrent_columns<System, Scalar, Eigen::Dynamic>(x, whole, x.value_width() - whole, out);
  }
  return out;
}

/// Chunk by chunk, the last one possibly shorter: parallel inside a chunk, with the state passed from chunk
/// to chunk (E-32). Throws Error for chunk < 1.
template <class System, class Scalar>
[[nodiscard]] Trajectory<Scalar> chunked(const Sequence<Scalar>& x, Index chunk) {
  if (chunk < 1) throw Error("chunk=" + std::to_string(chunk) + ": a chunk holds at least 1 token");
  Trajectory<Scalar> out = empty_trajectory(x);
  for (Index t = 0; t < x.tokens(); t += chunk) {
    const Index end = std::min(t + chunk, x.tokens());
    const Trajectory<Scalar> part = System::chunk(x.slice(t, end, out.state));
    out.o.middleRows(t, end - t) = part.o;
    out.delta.middleRows(t, end - t) = part.delta;
    out.state = part.state;
  }
  return out;
}

/// Splits at any tokens, carries the state and resumes (EQ-03, P-09). `cuts` are token positions in [0, T],
/// not decreasing; a cut at 0, at T, or twice at the same position makes an empty segment. `run` evaluates
/// one segment in any form. Throws Error for cuts out of order.
template <class Scalar, class Run>
[[nodiscard]] Trajectory<Scalar> resumed(const Sequence<Scalar>& x, const std::vector<Index>& cuts,
                                         Run&& run) {
  Trajectory<Scalar> out = empty_trajectory(x);
  Index begin = 0;
  for (std::size_t i = 0; i <= cuts.size(); ++i) {
    const Index end = i < cuts.size() ? cuts[i] : x.tokens();
    if (end < begin || end > x.tokens()) {
      throw Error("cut " + std::to_string(end) + ": cuts must not decrease and lie in 0.." +
                  std::to_string(x.tokens()));
    }
    const Trajectory<Scalar> part = run(x.slice(begin, end, out.state));
    out.o.middleRows(begin, end - begin) = part.o;
    out.delta.middleRows(begin, end - begin) = part.delta;
    out.state = part.state;
    begin = end;
  }
  return out;
}

/// Decode: one token per call, with the state carried over.
template <class System, class Scalar>
[[nodiscard]] Trajectory<Scalar> decode(const Sequence<Scalar>& x) {
  std::vector<Index> cuts;
  for (Index t = 1; t < x.tokens(); ++t) cuts.push_back(t);
  return resumed(x, cuts, [](const Sequence<Scalar>& part) { return recurrent<System>(part); });
}

/// Sequences of different lengths end to end: sequence n holds tokens [offsets[n], offsets[n+1]) and starts
/// from initial_states[n]. Nothing passes from one to the next, and empty sequences return their initial
/// state. Throws Error if offsets do not start at 0, decrease, or do not end at T.
template <class Scalar, class Run>
[[nodiscard]] std::vector<Trajectory<Scalar>> packed(const Sequence<Scalar>& x,
                                                     const std::vector<Index>& offsets,
                                                     const std::vector<Matrix<Scalar>>& initial_states,
                                                     Run&& run) {
  if (offsets.empty() || offsets.front() != 0 || offsets.back() != x.tokens() ||
      initial_states.size() + 1 != offsets.size()) {
    throw Error("packed: offsets must start at 0, end at T=" + std::to_string(x.tokens()) +
                " and bound one sequence an initial state");
  }
  std::vector<Trajectory<Scalar>> out;
  for (std::size_t n = 0; n + 1 < offsets.size(); ++n) {
    if (offsets[n + 1] < offsets[n]) {
      throw Error("packed: offset " + std::to_string(offsets[n + 1]) + " is below its predecessor " +
                  std::to_string(offsets[n]));
    }
    out.push_back(run(x.slice(offsets[n], offsets[n + 1], initial_states[n])));
  }
  return out;
}

/// E_ij = exp(G_i - G_j) for j <= i, else 0: the decay between two tokens of a chunk, without the token's own
/// step (RET-3: Gamma). Only differences <= 0 are exponentiated, because e^{-G_j} alone overflows (EQUATIONS
/// 8.3). g: [L] -> [L, L].
///
/// The difference is summed from j + 1 to i and not taken from two cumulative sums: after a hard reset (g ~
/// -1e38) such a difference has no correct digit left (BUGS M09).
template <class Scalar>
[[nodiscard]] Matrix<Scalar> decay_between(const Vector<Scalar>& g) {
  using std::exp;
  const Index L = g.size();
  Matrix<Scalar> E = Matrix<Scalar>::Zero(L, L);
  for (Index j = 0; j < L; ++j) {
    Scalar sum(0);
    for (Index i = j; i < L; ++i) {
      if (i > j) sum += g(i);
      E(i, j) = exp(sum);
    }
  }
  return E;
}

/// g as a kernel has it that takes decays as differences of one cumulative sum: g itself, since differences of an exact
/// sum are the sums in between. Scalars that carry an error overload it.
template <class Scalar>
[[nodiscard]] Vector<Scalar> cumulative_decay(const Vector<Scalar>& g) {
  return g;
}

/// exp(G_i), the decay from the chunk's start through token i. g: [L] -> [L].
template <class Scalar>
[[nodiscard]] Vector<Scalar> decay_from_start(const Vector<Scalar>& g) {
  using std::exp;
  Vector<Scalar> e(g.size());
  Scalar sum(0);
  for (Index i = 0; i < g.size(); ++i) {
    sum += g(i);
    e(i) = exp(sum);
  }
  return e;
}

/// X with (I + A) X = B for strictly lower triangular A, row by row from the top: x_i = b_i - sum_{j<i} A_ij
/// x_j. A: [L, L], B: [L, n] -> [L, n].
template <class Scalar>
[[nodiscard]] Matrix<Scalar> solve_unit_lower(const Matrix<Scalar>& A, const Matrix<Scalar>& B) {
  Matrix<Scalar> X = B;
  for (Index i = 1; i < A.rows(); ++i) X.row(i) -= A.row(i).head(i) * X.topRows(i);
  return X;
}

/// The part of a square matrix on (offset 0) or strictly below (offset -1) the diagonal.
template <class Scalar>
[[nodiscard]] Matrix<Scalar> lower(Matrix<Scalar> X, Index offset) {
  for (Index i = 0; i < X.rows(); ++i) {
    for (Index j = i + offset + 1; j < X.cols(); ++j) X(i, j) = Scalar(0);
  }
  return X;
}

}  // namespace samestate
