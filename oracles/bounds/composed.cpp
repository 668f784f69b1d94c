#include "oracles/bounds/composed.h"

#include <algorithm>
#include <cmath>

#include "oracles/bounds/algebra.h"
#include "oracles/bounds/chunked.h"
#include "oracles/bounds/shared.h"

/// With S = S_in, s its row norms (and what the carried error adds to them), X = [M Diag(s) | N] and dX what the chunked
/// form makes of its columns (BOUNDS 5 on map_sequence, its initial state [Diag(s) | 0]):
///   d(M S + N) = M dS + dX [Diag(1/s) S; I] + rounding of the product and of the sum
/// det:  ||[Diag(1/s) S; I]||^2 <= 1 + lambda_max(G), G the Gram matrix of the rows of Diag(1/s) S; M dS is in the direct
///       pass from S (its own local errors beside it, which det might spare).
/// prob: errors that the columns of X do not share (of M as an operand and as a sum) are independent: dX dX^T itself. Those
///       that they do (of K, W, T, of the decays) do to M S + N just what they do to the direct pass from S, which has them.
/// Both are added: what is counted twice is at most 3 dB.
namespace samestate {
namespace {

using Mat = Matrix<double>;
using Vec = Vector<double>;
using bounds::below_fp32;
using bounds::diagonal_roots;
using bounds::row_norms;

/// An upper bound of the largest eigenvalue of G = (Diag(1/s) S)(Diag(1/s) S)^T: its largest row sum.
double spread_of(const Mat& S, const Vec& s) {
  Mat unit = S;
  for (Index l = 0; l < S.rows(); ++l) unit.row(l) *= s(l) > 0 ? 1.0 / s(l) : 0.0;
  const Mat gram = unit * unit.transpose();
  return gram.cwiseAbs().rowwise().sum().maxCoeff();
}

/// The roundings of composing, row by row: n products for each element, their sum with N, and the state that
/// is kept.
template <Mode mode>
Vec rounding_of(const Mat& M, const Mat& N, const Mat& S, const Vec& s, Index n, const Contract& c) {
  using Norms = Algebra<mode == Mode::det ? Mode::det : Mode::prob>;
  const Vec m = Norms::mv(M, s);
  const Vec product = row_norms(M * S), next = row_norms(M * S + N), before = row_norms(N);
  const double each =
      std::max(Norms::accumulation(n, Accumulator::fp32), Norms::accumulation(n, c.accumulator));
  Vec summed;
  if constexpr (mode == Mode::det) {
    summed = each * (m + before);
  } else {
    summed = each * (m.cwiseAbs2() + product.cwiseMax(before).cwiseMax(next).cwiseAbs2()).cwiseSqrt();
  }
  const double u32 = Norms::deviation(kUnitRoundoff32);
  const Vec floor = Vec::Constant(
      m.size(), (subnormal_error(c.state) + 0x1p-148) * std::sqrt(static_cast<double>(S.cols())));
  return Norms::add(summed, u32 * (next + product), Norms::u(below_fp32(c.state)) * next, floor);
}

template <Mode mode>
StateError composed_error(const StateError& direct, const StateError& maps, double spread,
                          const Vec& rounding, Accumulator accumulator) {
  StateError out = direct;
  const Vec diagonal = Algebra<mode>::diag(rounding);
  const double columns = mode == Mode::det ? 1.0 + spread : 1.0;
  std::array<double, 3> f{1.0, 1.0, 1.0};
  if constexpr (mode != Mode::prob)
    f = worst_case_factors<3>({direct.sigma.trace(), columns * maps.sigma.trace(), diagonal.sum()});
  out.sigma = f[0] * direct.sigma + f[1] * columns * maps.sigma;
  out.sigma.diagonal() += f[2] * diagonal;
  // The mean error of decays is in the direct pass; the truncation of sums is that of the map's own elements.
  if (mode != Mode::det && accumulator == Accumulator::tensor_core) {
    const auto h = worst_case_factors<2>({direct.coherent.trace(), maps.coherent.trace()});
    out.coherent = h[0] * direct.coherent + h[1] * maps.coherent;
  }
  return out;
}

}  // namespace

Sequence<double> map_sequence(const Sequence<double>& part) {
  const Index dk = part.key_width(), dv = part.value_width();
  Sequence<double> maps = part;
  maps.v = Mat::Zero(part.tokens(), dk + dv);
  maps.v.rightCols(dv) = part.v;
  maps.initial_state = Mat::Zero(dk, dk + dv);
  maps.initial_state.leftCols(dk).setIdentity();
  return maps;
}

ComposedState composed_state(const Sequence<double>& part, const Sequence<double>& maps,
                             const Matrix<double>& exact, const StateError& direct, const StateError* carried,
                             const Contract& contract, Structure structure, Mode mode, Index chunk,
                             double key_norm_error) {
  const Index dk = part.key_width();
  const Mat& S = part.initial_state;
  const StateError before = bounds::starting_error(carried, mode, dk);
  const Vec s = row_norms(S) + diagonal_roots(before.sigma);
  // A value that underflows in M counts relative to S, not to 1: in units of c its columns are at most 1.
  const double c = std::max(1.0, s.maxCoeff());
  Sequence<double> scaled = maps;
  scaled.initial_state.leftCols(dk) = (s / c).asDiagonal();
  scaled.v /= c;
  Bound made = bound_chunked(scaled, contract, structure, mode, chunk, nullptr, key_norm_error);
  made.carry.sigma *= c * c;
  made.carry.coherent *= c * c;
  const Mat M = exact.leftCols(dk), N = exact.rightCols(part.value_width());

  ComposedState out;
  out.nonlinearity = made.nonlinearity;
  out.vacuous = made.vacuous;
  out.largest = std::max({made.largest, exact.cwiseAbs().maxCoeff(), (M * S).cwiseAbs().maxCoeff()});
  const Index n = structure.delta ? dk : 1;
  const auto with = [&]<Mode m>() {
    return composed_error<m>(direct, made.carry, m == Mode::det ? spread_of(S, s) : 0.0,
                             rounding_of<m>(M, N, S, s, n, contract), contract.accumulator);
  };
  out.error = mode == Mode::det    ? with.template operator()<Mode::det>()
              : mode == Mode::semi ? with.template operator()<Mode::semi>()
                                   : with.template operator()<Mode::prob>();
  return out;
}

}  // namespace samestate
