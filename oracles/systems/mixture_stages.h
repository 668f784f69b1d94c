#pragma once

#include "oracles/systems/stages.h"

/// The stages of mixtures of experts.
namespace samestate {

/// selection -> weights, hidden rows -> experts -> sum. Taps, by rank: experts [T, K], the indices of those
/// that the kernel chose, the largest logit first and the lower index first among equals; weights [T, K];
/// hidden [T, K, F], silu(W_gate x) W_up x; outputs [T, K, D] of the experts, before their weights.
[[nodiscard]] LayerStages mixture_of_experts_stages(const Call& call);

/// router -> the same, shared hidden rows -> shared expert, shared gate -> sum. Additional taps: logits [T,
/// N] by which the kernel chose; shared_hidden [T, Fs]; shared [T, D]; shared_gate_logit [T, 1]. For kernels
/// without the last one, shared gate and sum are one stage.
[[nodiscard]] LayerStages qwen3_next_moe_stages(const Call& call);

}  // namespace samestate
