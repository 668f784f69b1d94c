#pragma once

#include <algorithm>
#include <string_view>
#include <vector>

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

/// The tokens of each sequence of a call: of one, or of those that kLengths lists.
template <class Scalar>
[[nodiscard]] std::vector<Index> lengths_of(const Call& call, const Tensors<Scalar>& inputs) {
  const auto given = inputs.find(kLengths);
  if (given == inputs.end()) return {call.tokens};
  std::vector<Index> lengths;
  for (Index n = 0; n < given->second.rows(); ++n) {
    Index tokens = 0;
    while (tokens < call.tokens && given->second(n, 0) != Scalar(static_cast<double>(tokens))) ++tokens;
    lengths.push_back(tokens);
  }
  return lengths;
}

}  // namespace samestate
