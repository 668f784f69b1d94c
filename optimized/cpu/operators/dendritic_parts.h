#pragma once

#include <cstdint>
#include <span>

#include "optimized/operator_kernel.h"

/// Parts of the dendritic layer (EQUATIONS 7.3, 7.5).
namespace samestate::cpu {

/// omega [Es + size] of one token of one head: 1/Es for each shared branch and, for the K largest logits (of
/// equals the lower index), their softmax among themselves; all over the sum. Never forms the softmax over
/// all candidates. `taken` [size] is set for the chosen.
void branch_weights(std::span<const float> logits, std::int64_t shared, std::int64_t routed, float* omega,
                    bool* taken);

/// The split into overlapping windows by windows and the sum by channels, each from the windows that hold it.
[[nodiscard]] Outcome overlap_windows_channels(const OperatorArguments& call, const Contract& contract);

/// The dendritic router: logits, choice, weights of the chosen.
[[nodiscard]] Outcome dendritic_router_chosen(const OperatorArguments& call, const Contract& contract);

}  // namespace samestate::cpu
