#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "harness/cases/resolved.h"

namespace samestate {

/// The tensor that every system with time steps adds before their softplus.
inline constexpr std::string_view kStepBias = "dt_bias";

/// The inputs of a case of named tensors: each element is a function of (seed, tensor, coordinates), rounded
/// to the contract's input format if it is data or a weight.
[[nodiscard]] std::vector<CaseTensor> tensor_inputs(const Resolved& r);

/// Rounds the inputs that a kernel receives in other formats (KernelRow::formats), so that oracles read the
/// same values; values that are too large for a format become its largest. Slots are row numbers and are not
/// rounded.
void round_inputs(std::vector<CaseTensor>& inputs, const std::map<std::string, Format, std::less<>>& formats);

}  // namespace samestate
