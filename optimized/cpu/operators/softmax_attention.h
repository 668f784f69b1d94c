#pragma once

#include "optimized/operator_kernel.h"

/// Causal softmax attention with grouped queries. The queries are at the last of the keys' positions, so one
/// call is a prefill and calls of one token are decode.
namespace samestate::cpu {

/// Tiles of `chunk` keys, added to one running softmax.
[[nodiscard]] Outcome softmax_attention_tiles(const OperatorArguments& call, const Contract& contract);

/// One softmax per tile, merged at the end: the split over keys that decode kernels use.
[[nodiscard]] Outcome softmax_attention_split_keys(const OperatorArguments& call, const Contract& contract);

/// All query heads of a key head in one product, with the probabilities normalised before they multiply the
/// values.
[[nodiscard]] Outcome softmax_attention_groups(const OperatorArguments& call, const Contract& contract);

}  // namespace samestate::cpu
