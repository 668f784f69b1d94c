#pragma once

#include <string_view>
#include <vector>

#include "oracles/systems/operator.h"

/// The gradients of a router and of the experts that it chooses. The choice of the forward pass is a constant of them and
/// an input of the call, as training kernels save it, so that no error of a kernel's own scores can turn it.
namespace samestate {

/// The input [T, K] of these rows that holds the experts of each token, in descending order of their scores. Its
/// content is Content::slot: places among the N experts, as numbers, each at most once in a row.
inline constexpr std::string_view kChosenExperts = "experts";

[[nodiscard]] std::vector<Operator> expert_gradient_operators();

/// The experts [T, K] that the forward row of such a system chooses for these inputs, in float64. `inputs` are those
/// of the forward call.
[[nodiscard]] Matrix<double> experts_chosen(const Call& call, const Tensors<double>& inputs);

}  // namespace samestate
