#pragma once

#include <utility>
#include <vector>

#include "oracles/systems/operator.h"

/// Evaluates an operator in scalars that carry more than a value.
namespace samestate {

template <class Scalar>
[[nodiscard]] Matrix<Scalar> as(const Matrix<double>& x) {
  Matrix<Scalar> y(x.rows(), x.cols());
  for (Index i = 0; i < x.size(); ++i) y.data()[i] = Scalar(x.data()[i]);
  return y;
}

template <class Scalar>
[[nodiscard]] Tensors<Scalar> as(const Tensors<double>& inputs) {
  Tensors<Scalar> out;
  for (const auto& [name, x] : inputs) out.emplace(name, as<Scalar>(x));
  return out;
}

/// A batch of one, not copied.
template <class Scalar>
[[nodiscard]] std::vector<Tensors<Scalar>> alone(Tensors<Scalar> sequence) {
  std::vector<Tensors<Scalar>> batch;
  batch.push_back(std::move(sequence));
  return batch;
}

/// Evaluates one sequence in calls that end at `cuts`, by one of the functions of its row.
template <class Scalar>
[[nodiscard]] Tensors<Scalar> evaluate(Tensors<Scalar> (*row)(const Call&, const Tensors<Scalar>&),
                                       const Operator& op, const Call& call, const Tensors<double>& inputs,
                                       const std::vector<Index>& cuts) {
  return std::move(evaluate_in_calls<Scalar>(op, call, alone(as<Scalar>(inputs)), cuts,
                                             [&](const Call& one, const std::vector<Tensors<Scalar>>& part) {
                                               return alone(row(one, part.front()));
                                             })
                       .front());
}

}  // namespace samestate
