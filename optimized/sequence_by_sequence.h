#pragma once

#include <functional>

#include "optimized/operator_kernel.h"

namespace samestate {

using OperatorRun = std::function<Outcome(const OperatorArguments&, const Contract&)>;

/// Makes a function for packed batches from `run`, which accepts strides: it calls `run` with each sequence
/// alone, with its tokens, its states and all weights. A dense call goes to `run` unchanged. Throws Error if
/// cu_seqlens is not ascending within the tokens of a tensor.
[[nodiscard]] OperatorRun sequence_by_sequence(OperatorRun run);

}  // namespace samestate
