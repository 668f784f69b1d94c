#pragma once

#include <map>
#include <string_view>
#include <vector>

#include "fuzz/mutants/operators/changed_call.h"

/// The faults that every gradient of a weight may have: it is a sum over the tokens of all sequences of a call.
namespace samestate::mutants {

/// Outputs of a run that the caller does not see.
using Outputs = std::map<std::string_view, std::vector<float>>;

/// `faults`, and behind them those of every sum over a call: it forgets sequences or tokens, or is kept in 16 bits.
[[nodiscard]] std::vector<OperatorFault> with_sums(std::vector<OperatorFault> faults);

}  // namespace samestate::mutants
