#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>

#include "oracles/bounds/bound.h"
#include "oracles/rounding.h"

/// The algebra of error norms in which every bound is written once (BOUNDS 2). x, y >= 0 are errors (scalars,
/// vectors of row norms, or elementwise matrices), M and N real matrices.
///
/// Facts:
/// F1  |x|^T N |x| <= x^T Diag(N 1) x for symmetric N >= 0.
/// F2  (X+Y)(X+Y)^T <= (1 + 1/p) X X^T + (1 + p) Y Y^T for p > 0; p = sqrt(tr X X^T / tr Y Y^T) minimises the
///     trace, and then sqrt(tr) adds linearly.
/// F3  dS dS^T <= Sigma implies ||r^T dS|| <= sqrt(r^T Sigma r), ||dS||_F <= sqrt(tr Sigma).
/// F4  second moments of mean-independent roundings add; one rounding to u has variance at most u^2 / 3 (uniform
///     on [-u, u], the worst mantissa).
namespace samestate {

inline constexpr double kUnitRoundoff32 = 0x1p-24;
inline constexpr double kSmallestNormal32 = 0x1p-126;

template <Mode mode>
struct Algebra {
  static constexpr bool worst_case = mode == Mode::det;
  static constexpr bool linear_in_time = mode != Mode::prob;

  /// For a relative error of at most `limit`: the limit itself, or the standard deviation of that error (F4).
  [[nodiscard]] static double deviation(double limit) { return worst_case ? limit : limit / std::sqrt(3.0); }
  [[nodiscard]] static double u(Format format) { return deviation(unit_roundoff(format)); }

  /// The sum of errors of independent sources: x + y + ..., or sqrt(x^2 + y^2 + ...).
  template <class... Rest>
  [[nodiscard]] static double add(double first, Rest... rest) {
    return worst_case ? (first + ... + rest) : std::sqrt(((first * first) + ... + (rest * rest)));
  }
  template <class First, class... Rest>
  [[nodiscard]] static typename First::PlainObject add(const Eigen::MatrixBase<First>& first,
                                                       const Eigen::MatrixBase<Rest>&... rest) {
    if constexpr (worst_case) {
      return (first.derived() + ... + rest.derived());
    } else {
      return (first.cwiseAbs2() + ... + rest.cwiseAbs2()).cwiseSqrt();
    }
  }

  /// Row norms of M Y if the row norms of Y are at most y (and independent in prob): |M| y, or sqrt(M^2 y^2).
  template <class M, class Y>
  [[nodiscard]] static Vector<double> mv(const Eigen::MatrixBase<M>& m, const Eigen::MatrixBase<Y>& y) {
    if constexpr (worst_case) {
      return m.cwiseAbs() * y;
    } else {
      return (m.cwiseAbs2() * y.cwiseAbs2()).cwiseSqrt();
    }
  }

  /// Elementwise magnitude of a product all of whose terms are perturbed: |M| |N|, or sqrt(M^2 N^2).
  template <class M, class N>
  [[nodiscard]] static Matrix<double> mm(const Eigen::MatrixBase<M>& m, const Eigen::MatrixBase<N>& n) {
    if constexpr (worst_case) {
      return m.cwiseAbs() * n.cwiseAbs();
    } else {
      return (m.cwiseAbs2() * n.cwiseAbs2()).cwiseSqrt();
    }
  }

  /// Error of accumulating n products whose magnitudes sum to m (as mv or mm gives them) to the value
  /// `exact`. fp32 in any order, det: gamma_n m (Higham, ASNA 3.4-3.5). prob: n - 1 roundings of partial
  /// sums, whose mean square under random order is at most exact^2 (mean) + m^2 (fluctuation). Tensor core:
  /// 16 products are added exactly, then truncated to fp32 (2^-23), ceil(n/16) times; det allows for two more
  /// truncations per block.
  [[nodiscard]] static double accumulation(Index n, Accumulator accumulator) {
    const double terms = static_cast<double>(n);
    if (accumulator == Accumulator::tensor_core) {
      const double blocks = static_cast<double>((n + 15) / 16);
      return (worst_case ? terms + 2 * blocks : blocks) * 0x1p-23;
    }
    return worst_case ? terms * kUnitRoundoff32 / (1 - terms * kUnitRoundoff32)
                      : kUnitRoundoff32 / std::sqrt(3.0) * std::sqrt(terms);
  }
  [[nodiscard]] static double acc(Index n, double m, double exact, Accumulator accumulator) {
    return accumulation(n, accumulator) * (worst_case ? m : std::sqrt(m * m + exact * exact));
  }
  template <class M, class X>
  [[nodiscard]] static typename M::PlainObject acc(Index n, const Eigen::MatrixBase<M>& m,
                                                   const Eigen::MatrixBase<X>& exact,
                                                   Accumulator accumulator) {
    const double c = accumulation(n, accumulator);
    if constexpr (worst_case) {
      return c * m;
    } else {
      return c * (m.cwiseAbs2() + exact.cwiseAbs2()).cwiseSqrt();
    }
  }

  /// The diagonal of a majorant of E E^T for row norms of E of at most m. det: |(E E^T)_ij| <= m_i m_j, then
  /// F1 with N = m m^T. prob: rows are independent, so E E^T is diagonal on average.
  [[nodiscard]] static Vector<double> diag(const Vector<double>& m) {
    return worst_case ? Vector<double>(m * m.sum()) : Vector<double>(m.cwiseAbs2());
  }
};

/// Worst-case sum of ellipsoids Q_1, Q_2, ... by F2, from their traces: Q = sum_i factor_i Q_i with
/// factor_i = tau / tau_i, tau_i = sqrt(tr Q_i), tau = sum tau_i. A Q_i >= 0 of trace zero is zero.
template <std::size_t Count>
[[nodiscard]] std::array<double, Count> worst_case_factors(const std::array<double, Count>& traces) {
  std::array<double, Count> factor{};
  double total = 0.0;
  for (std::size_t i = 0; i < Count; ++i) {
    factor[i] = std::sqrt(std::max(traces[i], 0.0));
    total += factor[i];
  }
  for (double& root : factor) root = root > 0 ? total / root : 0.0;
  return factor;
}

}  // namespace samestate
