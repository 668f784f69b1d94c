#pragma once

#include <optional>
#include <vector>

#include "oracles/systems/judge_operator.h"

/// Routers whose choice is open: if two scores are closer than their errors, a correct kernel may choose
/// either, and everything that follows depends on the choice (EQUATIONS 8.2, bounds_operators.md 5.6).
namespace samestate {

/// A sequence evaluated with the choice that the kernel made.
struct ChosenByKernel {
  Call call;
  OperatorOracle oracle;
};

/// The call with its open choices taken from the kernel that wrote `actual`, and the oracle for it; nothing
/// if `oracle` leaves nothing undecided, or the outputs match no choice that a correct kernel may make.
/// Choices that cannot be read stay open.
[[nodiscard]] std::optional<ChosenByKernel> chosen_by_kernel(
    const Operator& op, const Call& call, const Tensors<double>& inputs, const std::vector<Index>& cuts,
    const Contract& contract, const OperatorOracle& oracle, const Tensors<double>& actual);

}  // namespace samestate
