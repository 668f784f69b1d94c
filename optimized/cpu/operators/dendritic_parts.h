#pragma once

#include <cstdint>
#include <span>

#include "optimized/operator_kernel.h"

/// Parts of the dendritic layer (EQUATIONS 7.3, 7.5).
namespace samestate::cpu {

/// omega [Es + size] of one token of one head: 1/Es for each shared branch and, for the K largest logits (the
/// lower index among equals), the softmax over those K; everything is divided by the sum. The softmax over
/// all candidates is never formed. `taken` [size] is set for the chosen ones.
void branch_weights(std::span<const float> logits, std::int64_t shared, std::int64_t routed, float* omega,
                    bool* taken);

/// The split into overlapping windows, computed by window, and the sum, computed by channel from the windows
/// that hold it.
[[nodiscard]] Outcome overlap_windows_channels(const OperatorArguments& call, const Contract& contract);

/// The dendritic router: logits, choice, and the weights of the chosen branches.
[[nodiscard]] Outcome dendritic_router_chosen(const OperatorArguments& call, const Contract& contract);

}  // namespace samestate::cpu
