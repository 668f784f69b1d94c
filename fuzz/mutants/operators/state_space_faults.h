#pragma once

#include <string_view>

#include "fuzz/mutants/operators/changed_call.h"

/// Faults shared by the scans and the mixers around them.
namespace samestate::mutants {

/// Every chunk starts from zero instead of from the state that the one before it left.
[[nodiscard]] OperatorFault chunks_forget(std::string_view state);
/// The state is returned one token early.
[[nodiscard]] OperatorFault early_state();

[[nodiscard]] OperatorFault state_not_read(std::string_view state);
[[nodiscard]] OperatorFault no_step_bias();
[[nodiscard]] OperatorFault no_skip();
[[nodiscard]] OperatorFault other_discretisation();
[[nodiscard]] OperatorFault rate_without_exponential();
[[nodiscard]] OperatorFault next_rate();

}  // namespace samestate::mutants
