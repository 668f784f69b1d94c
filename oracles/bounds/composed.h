#pragma once

#include "oracles/bounds/bound.h"

/// The state that reaches a rank through the map of a part, S <- M S + N, and its error (BOUNDS 5.3).
namespace samestate {

struct ComposedState {
  StateError error;
  double largest = 0.0;  ///< largest magnitude that the kernel must represent in between
  double nonlinearity = 0.0;
  bool vacuous = false;
};

/// The sequence that ends in [M | N], the map S |-> M S + N of `part`: its values are [0 | V], its initial
/// state [I | 0].
[[nodiscard]] Sequence<double> map_sequence(const Sequence<double>& part);

/// `part` starts from the exact state that reached it, and `carried` is the error of that state (null if it
/// has none); `direct` is the error of the part's own end state from there; `maps` is map_sequence(part) and
/// `exact` its end [M | N]. The map is made in the chunked form and composed in fp32 or with the contract's
/// accumulator, with sums in any order.
[[nodiscard]] ComposedState composed_state(const Sequence<double>& part, const Sequence<double>& maps,
                                           const Matrix<double>& exact, const StateError& direct,
                                           const StateError* carried, const Contract& contract,
                                           Structure structure, Mode mode, Index chunk,
                                           double key_norm_error);

}  // namespace samestate
