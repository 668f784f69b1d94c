#pragma once

#include <span>
#include <string_view>

#include "harness/cases/draws.h"

namespace samestate {

/// A named family of inputs (BOUNDS 9; DESIGN 4): its description and how it is drawn.
struct Regime {
  std::string_view name;
  std::string_view summary;
  bool exact = false;  ///< integers and powers of two: all correct kernels agree bit for bit
  bool gated = false;  ///< differs from another regime only in g, so it is for systems with a decay
  bool delta = false;  ///< differs from another regime only in beta, so it is for systems with the delta rule
  bool expands = false;  ///< each step expands the state, so the bound is soon useless
  bool lasting = false;  ///< no g below -1e-3: the state keeps what it holds, including its rounding errors
  bool plain = false;    ///< simple data: a failure found with it needs no simpler one
  FamilyDraws family = {};   ///< used if it is one of regimes()
  TensorDraws tensors = {};  ///< used if it is one of tensor_regimes()
};

/// The regimes of the recurrent family.
[[nodiscard]] std::span<const Regime> regimes();

/// The regimes of systems of named tensors (harness/systems/tensor_system.h).
[[nodiscard]] std::span<const Regime> tensor_regimes();

}  // namespace samestate
