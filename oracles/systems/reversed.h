#pragma once

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "oracles/systems/rows.h"

/// Helpers for the rows of backward passes, made from the forward rows.
namespace samestate {

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

/// A gradient of a weight as the one row that a vector is.
template <class Scalar>
[[nodiscard]] Matrix<Scalar> as_row(const Vector<Scalar>& x) {
  return x.transpose();
}

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

}  // namespace samestate
