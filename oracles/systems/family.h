#pragma once

#include <span>
#include <string_view>

#include "oracles/bounds/bound.h"
#include "reference/sequence.h"

namespace samestate {

/// A system of the recurrent family as the oracles use it: its reference in float64, and which inputs its
/// equations read.
struct Family {
  std::string_view name;
  std::string_view equation;
  bool gated = false;  ///< reads g
  bool delta = false;  ///< reads beta, and first subtracts what the state holds for the key
  Trajectory<double> (*recurrent)(const Sequence<double>&) = nullptr;
  Trajectory<double> (*chunked)(const Sequence<double>&, Index chunk) = nullptr;
  /// Distance between the float64 oracle and the exact value: the interval reference encloses the exact
  /// value, so its farther end bounds the distance rigorously. Largest row 2-norm for o, and Frobenius norm
  /// for the state.
  struct Certificate {
    Vector<double> o;  ///< [T] bound on the row's 2-norm error
    double state = 0.0;
  };
  Certificate (*certify)(const Sequence<double>&, const Trajectory<double>& float64) = nullptr;

  [[nodiscard]] Structure structure() const { return {delta}; }
};

[[nodiscard]] std::span<const Family> families();

/// The system of that name. Throws Error that lists the names.
[[nodiscard]] const Family& family_named(std::string_view name);

}  // namespace samestate
