#pragma once

#include <cstdint>

#include "harness/cases/regimes.h"
#include "oracles/batch.h"

namespace samestate {

/// The part of a case that the generators need.
struct Draw {
  BatchShape shape;
  const Regime* regime = nullptr;
  std::uint64_t seed = 0;
  bool gated = true;                   ///< the system reads g
  bool beta = true;                    ///< the system reads beta
  const Contract* contract = nullptr;  ///< its input and state formats round the data
  int threads = 1;                     ///< threads that share the tokens; the data do not depend on them
};

/// The inputs of a case: each element is a function of (seed, tensor, coordinates), rounded to the contract's
/// formats.
[[nodiscard]] Batch generate(const Draw& draw);

}  // namespace samestate
