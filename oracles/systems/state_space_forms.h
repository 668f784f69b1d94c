#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>
#include <utility>

#include "oracles/bounds/drawn_sums.h"
#include "oracles/bounds/running_error.h"
#include "reference/selective_scan_parallel.h"
#include "reference/state_space_duality.h"

/// State spaces as kernels evaluate them, in those cases where they round differently from the references'
/// forms: chunks one after the other with the state passed on, and the factor of the zero-order hold.
namespace samestate {

/// e^g of a sum g <= 0 that a kernel, too, computes from terms <= 0: whatever their error, e^g stays in [0,
/// 1], except for the last places of an exponential near 1.
[[nodiscard]] inline Running decay_of(const Running& g) {
  const Running e = exp(g);
  const double last_places = 4.0 * detail::running_model().unit;
  return Running::within(e.value(), std::min(e.error(), std::max(e.value(), 1.0 - e.value() + last_places)));
}

/// (e^{Delta A} - 1) / A, A < 0, with its error. Delta occurs twice in the reference's quotient, and its
/// error, which the softplus makes absolute, leaves no room above zero if Delta is small. But the factor
/// itself lies in [0, -1 / A], changes by e^{Delta A} for a change of Delta, which is >= 0 in a kernel too,
/// and relatively by at most one for a relative change of A or of the product. Then expm1, a quotient and two
/// products round.
[[nodiscard]] inline Running input_factor_of(const Running& delta, const Running& A, Discretisation mode) {
  if (mode == Discretisation::euler) return delta;
  const RunningModel& model = detail::running_model();
  const double x = delta.value() * A.value();
  const double factor = x == 0.0 ? delta.value() : std::expm1(x) / A.value();
  const double room = std::abs(A.value()) - A.error();
  if (!(room > 0.0)) return Running::within(factor, kUnlimited).made_of(delta).made_of(A);
  const double slope = std::exp(-std::max(delta.value() - delta.error(), 0.0) * room);
  const double of_delta = std::min(delta.error() * slope, std::max(factor, 1.0 / room - factor));
  const double of_A = A.error() / room * (std::abs(factor) + of_delta);
  // A product Delta A below the normal numbers may be flushed, and is then divided by A.
  const double flushed = std::abs(x) < 2.0 * model.tiny ? model.tiny / room : 0.0;
  const double units = 2.0 + model.function_units + model.division_units;
  return Running::rounded(factor, of_delta + of_A + flushed, units).made_of(delta).made_of(A);
}

/// The exponentials of a state space for Delta >= 0 and A < 0, with these errors.
struct RunningFactors {
  [[nodiscard]] static Running decay(const Running& delta, const Running& A) { return decay_of(delta * A); }
  [[nodiscard]] static Running input(const Running& delta, const Running& A, Discretisation mode) {
    return input_factor_of(delta, A, mode);
  }
  /// Kernels add the terms between two tokens, or subtract two of their sums from the chunk's start, which
  /// are rounded at their own size: sequentially, so that the later sum contains the rounding of the earlier
  /// one, or as a tree.
  [[nodiscard]] static Matrix<Running> between(const Vector<Running>& g) {
    const Index L = g.size();
    const double tree = 2.0 * (2.0 + std::log2(static_cast<double>(std::max<Index>(L, 1))));
    std::vector<double> size(static_cast<std::size_t>(L) + 1);  // magnitudes of the sums from the start
    for (Index i = 0; i < L; ++i) {
      size[static_cast<std::size_t>(i) + 1] =
          size[static_cast<std::size_t>(i)] + std::abs(g(i).value()) + g(i).error();
    }
    Matrix<Running> E = Matrix<Running>::Zero(L, L);
    for (Index j = 0; j < L; ++j) {
      Running sum(0);
      for (Index i = j; i < L; ++i) {
        if (i > j) sum += g(i);
        const double roundings = i > j ? std::max(static_cast<double>(i - j), tree) : 0.0;
        const double error =
            sum.error() + roundings * detail::running_model().unit * size[static_cast<std::size_t>(i) + 1];
        E(i, j) = decay_of(Running::within(sum.value(), error));
      }
    }
    return E;
  }
  [[nodiscard]] static Vector<Running> from_start(const Vector<Running>& g) {
    Vector<Running> e(g.size());
    Running sum(0);
    for (Index i = 0; i < g.size(); ++i) {
      sum += g(i);
      e(i) = decay_of(sum);
    }
    return e;
  }
};

/// For a sample, whose sums from the chunk's start are drawn.
struct StochasticFactors : PlainFactors {
  [[nodiscard]] static Matrix<Stochastic> between(const Vector<Stochastic>& g) {
    return decay_between(of_drawn_sums(g));
  }
  [[nodiscard]] static Vector<Stochastic> from_start(const Vector<Stochastic>& g) {
    return decay_from_start(of_drawn_sums(g));
  }
};

/// The exponentials that the oracle of a kernel passes to the references' forms.
template <class Scalar>
using OracleFactors = std::conditional_t<
    std::is_same_v<Scalar, Running>, RunningFactors,
    std::conditional_t<std::is_same_v<Scalar, Stochastic>, StochasticFactors, PlainFactors>>;

/// h_t after every token, by composing one map after the other from the first of the chunk: the work of a
/// thread on the tokens that it holds.
template <class Scalar>
[[nodiscard]] DiagonalMaps<Scalar> composed_in_order(DiagonalMaps<Scalar> maps) {
  for (Index t = 1; t < maps.a.rows(); ++t) detail::compose_maps(maps, t - 1, maps, t, maps, t);
  return maps;
}

/// Chunk after chunk, the last one possibly shorter: maps are composed inside, h = a h_0 + b, and the last h
/// is the next chunk's h_0. Throws Error for chunk < 1 or if shapes disagree.
template <class Scalar>
[[nodiscard]] SelectiveScanOutput<Scalar> selective_scan_chunk_after_chunk(const SelectiveScan<Scalar>& x,
                                                                           Discretisation mode, Index chunk) {
  if (chunk < 1) throw Error("chunk=" + std::to_string(chunk) + ": a chunk holds at least 1 token");
  require_selective_scan(x);
  const Index T = x.tokens();
  SelectiveScanOutput<Scalar> out{Matrix<Scalar>(T, x.channels()), Matrix<Scalar>(T, x.channels()),
                                  x.initial_state};
  for (Index begin = 0; begin < T; begin += chunk) {
    const Index n = std::min(chunk, T - begin);
    SelectiveScanOutput<Scalar> part = selective_scan_associative<OracleFactors<Scalar>>(
        x.slice(begin, n, std::move(out.state)), mode, composed_in_order<Scalar>);
    out.y.middleRows(begin, n) = part.y;
    out.out.middleRows(begin, n) = part.out;
    out.state = std::move(part.state);
  }
  return out;
}

/// The quadratic dual of one chunk after the other, with the state passed on. Throws Error for chunk < 1 or
/// if shapes disagree.
template <class Scalar>
[[nodiscard]] StateSpaceOutput<Scalar> state_space_chunk_after_chunk(const StateSpaceHead<Scalar>& x,
                                                                     Index chunk) {
  if (chunk < 1) throw Error("chunk=" + std::to_string(chunk) + ": a chunk holds at least 1 token");
  require_state_space(x);
  StateSpaceOutput<Scalar> out{Matrix<Scalar>(x.tokens(), x.x.cols()), x.initial_state};
  for (Index begin = 0; begin < x.tokens(); begin += chunk) {
    const Index n = std::min(chunk, x.tokens() - begin);
    StateSpaceOutput<Scalar> part = state_space_quadratic<Scalar, OracleFactors<Scalar>>(
        {x.x.middleRows(begin, n), x.delta.segment(begin, n), x.A, x.B.middleRows(begin, n),
         x.C.middleRows(begin, n), x.skip, std::move(out.state)});
    out.y.middleRows(begin, n) = part.y;
    out.state = std::move(part.state);
  }
  return out;
}

}  // namespace samestate
