#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <type_traits>

#include "reference/rounding_point.h"
#include "reference/sequence.h"

/// The two passes over the state from which every step is built. They are written out because the speed of
/// the oracle depends on them: as Eigen expressions they would read and write the state up to twice as often.
namespace samestate {

/// The decay of a system without decay: S is unchanged, and no multiplication is spent on it.
struct NoDecay {};

namespace detail {

/// Key rows that are processed together: the running sums are loaded and stored once for all of them.
inline constexpr Index kRowsAtOnce = 4;

/// a b + c, in one rounding if the scalar supports it, so that the bits do not depend on what the compiler
/// contracts.
template <class Scalar>
[[nodiscard]] Scalar multiply_add(const Scalar& a, const Scalar& b, const Scalar& c) {
  if constexpr (std::is_same_v<Scalar, double>) {
    return std::fma(a, b, c);
  } else {
    return a * b + c;
  }
}

template <class Scalar>
[[nodiscard]] Scalar decayed(const Scalar& alpha, const Scalar& x) {
  return alpha * x;
}
template <class Scalar>
[[nodiscard]] Scalar decayed(NoDecay, const Scalar& x) {
  return x;
}

/// R <- alpha R and sum <- sum + x R. x: [rows], R: [rows, n] dense, sum: [n].
template <Index rows, class Decay, class Scalar>
void decay_read_rows(const Decay& alpha, const Scalar* x, Scalar* R, Index n, Scalar* sum) {
  const Decay decay = repeated_factor(alpha);
  std::array<Scalar, static_cast<std::size_t>(rows)> key;
  std::transform(x, x + rows, key.begin(), repeated_factor<Scalar>);
#pragma GCC ivdep
  for (Index j = 0; j < n; ++j) {
    Scalar total = sum[j];
    for (Index r = 0; r < rows; ++r) {
      const Scalar entry = decayed<Scalar>(decay, R[r * n + j]);
      if constexpr (!std::is_same_v<Decay, NoDecay>) R[r * n + j] = entry;
      total = multiply_add<Scalar>(key[static_cast<std::size_t>(r)], entry, total);
    }
    sum[j] = total;
  }
}

/// R <- alpha R + x^T u and sum <- sum + y R. x, y: [rows], u, sum: [n], R: [rows, n] dense.
template <Index rows, class Decay, class Scalar>
void decay_write_read_rows(const Decay& alpha, const Scalar* x, const Scalar* u, const Scalar* y, Scalar* R,
                           Index n, Scalar* sum) {
  const Decay decay = repeated_factor(alpha);
  std::array<Scalar, static_cast<std::size_t>(rows)> key;
  std::array<Scalar, static_cast<std::size_t>(rows)> query;
  std::transform(x, x + rows, key.begin(), repeated_factor<Scalar>);
  std::transform(y, y + rows, query.begin(), repeated_factor<Scalar>);
#pragma GCC ivdep
  for (Index j = 0; j < n; ++j) {
    Scalar total = sum[j];
    for (Index r = 0; r < rows; ++r) {
      const Scalar entry =
          multiply_add<Scalar>(key[static_cast<std::size_t>(r)], u[j], decayed<Scalar>(decay, R[r * n + j]));
      R[r * n + j] = entry;
      total = multiply_add<Scalar>(query[static_cast<std::size_t>(r)], entry, total);
    }
    sum[j] = total;
  }
}

/// One row of the state's width.
template <class State>
using RowOf = Eigen::Matrix<typename State::Scalar, 1, State::ColsAtCompileTime, Eigen::RowMajor>;

/// The state's width, a constant if its type fixes it.
template <class State>
[[nodiscard]] Index width_of([[maybe_unused]] const State& S) {
  if constexpr (State::ColsAtCompileTime == Eigen::Dynamic) {
    return S.cols();
  } else {
    return State::ColsAtCompileTime;
  }
}

}  // namespace detail

/// S <- alpha S, and S^T x, the value that the new S holds under key x: sum_l x_l S_l, in one pass over the
/// state. alpha: Scalar or NoDecay, x: [1, dk] dense, S: [dk, n] row-major -> [1, n].
template <class Decay, class Key, class State>
[[nodiscard]] auto decay_read(const Decay& alpha, const Key& x, State& S) {
  const Index n = detail::width_of(S);
  detail::RowOf<State> sum;
  sum.setZero(1, n);
  Index l = 0;
  for (; l + detail::kRowsAtOnce <= S.rows(); l += detail::kRowsAtOnce) {
    detail::decay_read_rows<detail::kRowsAtOnce>(alpha, x.data() + l, S.data() + l * n, n, sum.data());
  }
  for (; l < S.rows(); ++l) detail::decay_read_rows<1>(alpha, x.data() + l, S.data() + l * n, n, sum.data());
  return sum;
}

/// S <- alpha S + x^T u, which writes the value u under key x, and then S^T y, in one pass over the state.
/// alpha: Scalar or NoDecay, x, y: [1, dk] dense, u: [1, n] dense, S: [dk, n] row-major -> [1, n].
template <class Decay, class Key, class Value, class Query, class State>
[[nodiscard]] auto decay_write_read(const Decay& alpha, const Key& x, const Value& u, const Query& y,
                                    State& S) {
  const Index n = detail::width_of(S);
  detail::RowOf<State> sum;
  sum.setZero(1, n);
  Index l = 0;
  for (; l + detail::kRowsAtOnce <= S.rows(); l += detail::kRowsAtOnce) {
    detail::decay_write_read_rows<detail::kRowsAtOnce>(alpha, x.data() + l, u.data(), y.data() + l,
                                                       S.data() + l * n, n, sum.data());
  }
  for (; l < S.rows(); ++l) {
    detail::decay_write_read_rows<1>(alpha, x.data() + l, u.data(), y.data() + l, S.data() + l * n, n,
                                     sum.data());
  }
  return sum;
}

}  // namespace samestate
