#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "reference/error.h"
#include "reference/gated_delta_rule.h"

/// Tokens divided among ranks. The tokens of a rank are one affine map of the state, computed from these
/// tokens alone, and the maps are composed in order (EQ-04). They are written from the step's own matrices
/// and do not use a run of any form.
namespace samestate {

/// The step of token t of any system as a map: A = a (I - b k k^T) and B = b k v^T; without the delta rule A
/// = a I and B = k v^T. a is e^g, or 1 if the system has no decay, and then g is not read.
template <class System, class Scalar>
[[nodiscard]] AffineMap<Scalar> step_map(const Sequence<Scalar>& x, Index t) {
  using std::exp;
  const Matrix<Scalar> identity = Matrix<Scalar>::Identity(x.key_width(), x.key_width());
  const Scalar decay = System::gated ? Scalar(exp(x.g(t))) : Scalar(1);
  const Vector<Scalar> k = x.k.row(t).transpose();
  if constexpr (System::delta) {
    return {decay * (identity - x.beta(t) * k * k.transpose()), x.beta(t) * k * x.v.row(t)};
  } else {
    return {decay * identity, k * x.v.row(t)};
  }
}

/// All tokens of x as one map, valid for any starting state; the identity if there are no tokens.
template <class System, class Scalar>
[[nodiscard]] AffineMap<Scalar> part_map(const Sequence<Scalar>& x) {
  AffineMap<Scalar> map{Matrix<Scalar>::Identity(x.key_width(), x.key_width()),
                        Matrix<Scalar>::Zero(x.key_width(), x.value_width())};
  for (Index t = 0; t < x.tokens(); ++t) map = then(map, step_map<System>(x, t));
  return map;
}

/// The state at each of the `maps.size() + 1` boundaries of ranks: S_0, and then A S + B for each map in
/// turn.
template <class Scalar>
[[nodiscard]] std::vector<Matrix<Scalar>> scanned_states(const std::vector<AffineMap<Scalar>>& maps,
                                                         const Matrix<Scalar>& initial_state) {
  std::vector<Matrix<Scalar>> states{initial_state};
  for (const AffineMap<Scalar>& map : maps) states.push_back(map.A * states.back() + map.B);
  return states;
}

/// Rank r holds the tokens [cuts[r], cuts[r + 1]), and none if the two are equal. Throws Error unless cuts
/// ascend from 0 to T.
template <class System, class Scalar>
[[nodiscard]] Trajectory<Scalar> sequence_parallel(const Sequence<Scalar>& x,
                                                   const std::vector<Index>& cuts) {
  if (cuts.size() < 2 || cuts.front() != 0 || cuts.back() != x.tokens())
    throw Error("cuts: must go from 0 to T=" + std::to_string(x.tokens()));
  std::vector<Sequence<Scalar>> parts;
  std::vector<AffineMap<Scalar>> maps;
  for (std::size_t r = 0; r + 1 < cuts.size(); ++r) {
    if (cuts[r + 1] < cuts[r]) {
      throw Error("cuts[" + std::to_string(r + 1) + "]=" + std::to_string(cuts[r + 1]) +
                  ": must not be below the cut before it, " + std::to_string(cuts[r]));
    }
    parts.push_back(x.slice(cuts[r], cuts[r + 1], x.initial_state));
    maps.push_back(part_map<System>(parts.back()));
  }
  const std::vector<Matrix<Scalar>> states = scanned_states(maps, x.initial_state);
  Trajectory<Scalar> out = empty_trajectory(x);
  for (std::size_t r = 0; r < parts.size(); ++r) {
    parts[r].initial_state = states[r];
    const Trajectory<Scalar> part = recurrent<System>(parts[r]);
    out.o.middleRows(cuts[r], part.o.rows()) = part.o;
    out.delta.middleRows(cuts[r], part.delta.rows()) = part.delta;
  }
  out.state = states.back();
  return out;
}

}  // namespace samestate
