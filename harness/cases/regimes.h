#pragma once

#include <span>
#include <string_view>

#include "harness/cases/draws.h"

namespace samestate {

/// A named family of inputs (BOUNDS 9; DESIGN 4): what it is and how it is drawn.
struct Regime {
  std::string_view name;
  std::string_view summary;
  bool exact = false;        ///< integers and powers of two: every correct kernel agrees bit for bit
  bool gated = false;        ///< differs from another regime in g alone, so it is for systems with a decay
  bool delta = false;        ///< differs in beta alone, so it is for systems with the delta rule
  bool expands = false;      ///< a step expands the state, so that its bound soon says nothing
  bool lasting = false;      ///< no g below -1e-3: what a state holds, its roundings too, stays
  bool plain = false;        ///< few things in the data: a failure that it shows needs no other
  FamilyDraws family = {};   ///< read where it is one of regimes()
  TensorDraws tensors = {};  ///< read where it is one of tensor_regimes()
};

/// Those of the recurrent family.
[[nodiscard]] std::span<const Regime> regimes();

/// Those of the systems of named tensors (harness/systems/tensor_system.h).
[[nodiscard]] std::span<const Regime> tensor_regimes();

}  // namespace samestate
