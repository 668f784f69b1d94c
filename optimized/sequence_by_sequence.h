#pragma once

#include <functional>

#include "optimized/operator_kernel.h"

namespace samestate {

using OperatorRun = std::function<Outcome(const OperatorArguments&, const Contract&)>;

/// A function of packed batches that calls `run`, which takes strides, with each sequence alone: its tokens, its states and all
/// weights. A dense call goes to `run` as it is. Throws Error where cu_seqlens is not ascending within the tokens of a tensor.
[[nodiscard]] OperatorRun sequence_by_sequence(OperatorRun run);

}  // namespace samestate
