#pragma once

#include <vector>

#include "fuzz/mutants/operators/changed_call.h"

namespace samestate::mutants {

/// The faults of a kernel, and behind them those of every sum over the tokens of a call, as the gradients of weights are:
/// sums that forget a sequence or a token, or that are kept in 16 bits.
[[nodiscard]] std::vector<OperatorFault> with_sums(std::vector<OperatorFault> faults);

}  // namespace samestate::mutants
