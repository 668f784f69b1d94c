#pragma once

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "oracles/systems/end_to_end.h"
#include "oracles/systems/rows.h"
#include "oracles/systems/weight_gradient.h"

/// Helpers of rows of gradients: the inputs of a forward row and the cotangents `d.OUTPUT` of its outputs come in, and
/// gradients `d.INPUT` go out.
namespace samestate::gradient_rows {

using samestate::as_row;

/// The tensor of `spec` as its gradient or, of an output, as the cotangent.
[[nodiscard]] inline TensorSpec gradient_of(TensorSpec spec) {
  spec.name = "d." + spec.name;
  return spec;
}

/// The inputs of the forward row of that name, then the cotangents of all its outputs, and as outputs the gradients of
/// all inputs.
template <std::vector<Operator> (*rows)()>
[[nodiscard]] Signature reversed(const Call& call, std::string_view forward) {
  static const std::vector<Operator> all = rows();
  Signature s = std::ranges::find(all, forward, &Operator::name)->signature(call);
  Signature back{s.inputs, {}};
  for (TensorSpec& spec : s.outputs) back.inputs.push_back(gradient_of(std::move(spec)));
  for (TensorSpec& spec : s.inputs) back.outputs.push_back(gradient_of(std::move(spec)));
  return back;
}

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

/// Drops the cotangent that the key `cotangent` of a call leaves out: that of the output `output` or of the state `state`.
inline void keep_given(Signature& s, const Call& call, std::string_view output, std::string_view state) {
  const auto given = static_cast<Cotangent>(call.at("cotangent"));
  std::erase_if(s.inputs, [&](const TensorSpec& spec) {
    return (spec.name == output && given == Cotangent::state) ||
           (spec.name == state && given == Cotangent::o);
  });
}

/// The key `cotangent` of rows with a state.
inline constexpr Parameter kGivenCotangents{"cotangent", 0, 0, 2, "which cotangents are given (Cotangent)"};

/// The row of the gradients of a forward row, whose sizes and forms it has.
template <class Form>
[[nodiscard]] Operator reverse_of(const std::vector<Operator>& rows, std::string_view forward,
                                  std::string_view name, std::string_view equation) {
  Operator row = *std::ranges::find(rows, forward, &Operator::name);
  row.name = name;
  row.equation = equation;
  row.streams = false;
  row.signature = Form::signature;
  evaluate_with<Form>(row);
  return row;
}

}  // namespace samestate::gradient_rows
