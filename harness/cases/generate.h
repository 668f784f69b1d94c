#pragma once

#include <cstdint>

#include "harness/cases/regimes.h"
#include "oracles/batch.h"

namespace samestate {

/// What the generators need of a case.
struct Draw {
  BatchShape shape;
  const Regime* regime = nullptr;
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
