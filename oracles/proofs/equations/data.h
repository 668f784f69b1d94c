#pragma once

#include <cmath>
#include <vector>

#include "oracles/proofs/identities/draw.h"
#include "reference/l2norm.h"
#include "reference/sequence.h"

/// Small inputs for the rows: the scalar counterexamples of the ledger, and random inputs for rows that hold
/// for any.
namespace samestate {

/// Keys, queries and values of width 1, as in the ledger's counterexamples. beta and g per token.
[[nodiscard]] inline Sequence<double> scalar_sequence(const std::vector<double>& k,
                                                      const std::vector<double>& v,
                                                      const std::vector<double>& beta,
                                                      const std::vector<double>& g, double state = 0.0) {
  const Index T = static_cast<Index>(k.size());
  Sequence<double> x;
  x.k = Eigen::Map<const Matrix<double>>(k.data(), T, 1);
  x.q = Matrix<double>::Ones(T, 1);
  x.v = Eigen::Map<const Matrix<double>>(v.data(), T, 1);
  x.beta = Eigen::Map<const Vector<double>>(beta.data(), T);
  x.g = Eigen::Map<const Vector<double>>(g.data(), T);
  x.initial_state = Matrix<double>::Constant(1, 1, state);
  return x;
}

/// A random head: normalised keys and queries, decays in [-1, 0), write strengths in (0, 1), the scale
/// dk^-1/2, and a random state.
[[nodiscard]] inline Sequence<double> drawn_sequence(Index T, Index dk, Index dv, std::uint64_t seed = 1) {
  IdentityDraw<double> draw(seed);
  Sequence<double> x;
  x.q = l2norm(draw.normal(T, dk));
  x.k = l2norm(draw.normal(T, dk));
  x.v = draw.normal(T, dv);
  x.g = draw.uniform_vector(T, -1.0, 0.0);
  x.beta = draw.uniform_vector(T);
  x.scale = 1.0 / std::sqrt(static_cast<double>(dk));
  x.initial_state = draw.normal(dk, dv);
  return x;
}

/// The same without an initial state.
[[nodiscard]] inline Sequence<double> from_zero_state(Sequence<double> x) {
  x.initial_state.setZero();
  return x;
}

/// A matrix with one row or one entry.
[[nodiscard]] inline Matrix<double> row_of(const std::vector<double>& values) {
  return Eigen::Map<const Matrix<double>>(values.data(), 1, static_cast<Index>(values.size()));
}

}  // namespace samestate
