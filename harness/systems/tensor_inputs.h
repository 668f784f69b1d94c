#pragma once

#include <string_view>
#include <vector>

#include "harness/cases/resolved.h"

namespace samestate {

/// The tensor of every system with time steps that is added before their softplus.
inline constexpr std::string_view kStepBias = "dt_bias";

/// The inputs of a case of named tensors, each element a function of (seed, tensor, coordinates), rounded to
/// the contract's input format where it is data or a weight.
[[nodiscard]] std::vector<CaseTensor> tensor_inputs(const Resolved& r);

}  // namespace samestate
