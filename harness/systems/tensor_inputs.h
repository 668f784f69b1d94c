#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "harness/cases/resolved.h"

namespace samestate {

/// The tensor of every system with time steps that is added before their softplus.
inline constexpr std::string_view kStepBias = "dt_bias";

/// The inputs of a case of named tensors, each element a function of (seed, tensor, coordinates), rounded to
/// the contract's input format where it is data or a weight.
[[nodiscard]] std::vector<CaseTensor> tensor_inputs(const Resolved& r);

/// Rounds the inputs that a kernel is given in formats of its own (KernelRow::formats), so that oracles read what it does;
/// what is too large for one becomes its largest. Slots are numbers of rows, and stay.
void round_inputs(std::vector<CaseTensor>& inputs, const std::map<std::string, Format, std::less<>>& formats);

}  // namespace samestate
