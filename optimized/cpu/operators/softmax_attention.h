#pragma once

#include "optimized/operator_kernel.h"

/// Causal softmax attention with grouped queries; the queries are the last of the keys' positions, so that
/// one call is a prefill and calls of one token a decode.
namespace samestate::cpu {

/// Tiles of `chunk` keys into one running softmax.
[[nodiscard]] Outcome softmax_attention_tiles(const OperatorArguments& call, const Contract& contract);

/// A softmax a tile, merged at the end: the split over keys that decode kernels use.
[[nodiscard]] Outcome softmax_attention_split_keys(const OperatorArguments& call, const Contract& contract);

/// All query heads of a key head in one product, the probabilities normalised before they meet the values.
[[nodiscard]] Outcome softmax_attention_groups(const OperatorArguments& call, const Contract& contract);

}  // namespace samestate::cpu
