#pragma once

#include <vector>

#include "harness/cases/resolved.h"

namespace samestate {

/// The inputs of a case of named tensors, each element a function of (seed, tensor, coordinates), rounded to
/// the contract's input format where it is data or a weight.
[[nodiscard]] std::vector<CaseTensor> tensor_inputs(const Resolved& r);

}  // namespace samestate
