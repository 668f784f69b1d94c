#pragma once

#include <optional>
#include <vector>

#include "oracles/systems/judge_operator.h"

/// Routers whose choice is open: a correct kernel may go either way where two scores are as near as their errors, and all that
/// follows is the other expert's (EQUATIONS 8.2, bounds_operators.md 5.6).
namespace samestate {

/// A sequence with the choice that the kernel made.
struct ChosenByKernel {
  Call call;
  OperatorOracle oracle;
};

/// A call whose open choices are those of the kernel that wrote `actual`, and what it is held against then; nothing where `oracle`
/// leaves nothing undecided or the outputs tell of no choice that a correct kernel may make. What stays open stays so.
[[nodiscard]] std::optional<ChosenByKernel> chosen_by_kernel(
    const Operator& op, const Call& call, const Tensors<double>& inputs, const std::vector<Index>& cuts,
    const Contract& contract, const OperatorOracle& oracle, const Tensors<double>& actual);

}  // namespace samestate
