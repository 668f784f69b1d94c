#pragma once

#include "optimized/operator_kernel.h"

namespace samestate::cpu {

/// Non-causal linear attention, state first: Q (K^T V), linear in T.
[[nodiscard]] Outcome linear_attention_state_first(const OperatorArguments& call, const Contract& contract);

/// Normalised linear attention in chunks, with numerator and denominator carried over.
[[nodiscard]] Outcome linear_attention_normalised_chunks(const OperatorArguments& call,
                                                         const Contract& contract);

}  // namespace samestate::cpu
