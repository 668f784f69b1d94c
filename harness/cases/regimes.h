#pragma once

#include <span>
#include <string_view>

#include "oracles/batch.h"

namespace samestate {

/// A named family of inputs (BOUNDS 9; DESIGN 4).
struct Regime {
  std::string_view name;
  std::string_view summary;
  bool exact = false;  ///< integers and powers of two: every correct kernel agrees bit for bit
  bool gated = false;  ///< differs from another regime in g alone, so it is for systems with a decay
  bool delta = false;  ///< differs in beta alone, so it is for systems with the delta rule
};

[[nodiscard]] std::span<const Regime> regimes();

/// The regime of that name. Throws Error that lists the names.
[[nodiscard]] const Regime& regime_named(std::string_view name);

/// What the generators need of a case.
struct Draw {
  BatchShape shape;
  std::string_view regime;
  std::uint64_t seed = 0;
  bool gated = true;                   ///< the system reads g
  bool beta = true;                    ///< the system reads beta
  const Contract* contract = nullptr;  ///< its input and state formats round the data
  int threads = 1;                     ///< that share the tokens out; the data is the same
};

/// The inputs of a case: each element a function of (seed, tensor, coordinates), rounded to the contract's
/// formats.
[[nodiscard]] Batch generate(const Draw& draw);

}  // namespace samestate
