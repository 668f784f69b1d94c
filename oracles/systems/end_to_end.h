#pragma once

#include <algorithm>
#include <string_view>

#include "oracles/systems/operator.h"

/// Calls of which an output is a sum over all sequences, as the gradient of a weight is (Axis::whole). Nothing of such a
/// sum belongs to a sequence, so that the sequences of a call, one after another, are evaluated and judged as one.
namespace samestate {

/// True if an output of these is such a sum.
[[nodiscard]] inline bool sums_sequences(const Signature& signature) {
  return std::ranges::any_of(signature.outputs,
                             [](const TensorSpec& output) { return output.axis == Axis::whole; });
}

/// The input of a row that is not token_wise in which the tokens of each sequence stand, [sequences, 1]. Its token tensors
/// have the rows of all sequences then, and its states one sequence's rows after another's. Without it there is one
/// sequence. No kernel sees it.
inline constexpr std::string_view kLengths = "lengths";

}  // namespace samestate
