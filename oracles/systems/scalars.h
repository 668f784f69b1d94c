#pragma once

#include <vector>

#include "oracles/systems/operator.h"

/// An operator evaluated in scalars that carry more than a value.
namespace samestate {

template <class Scalar>
[[nodiscard]] Tensors<Scalar> as(const Tensors<double>& inputs) {
  Tensors<Scalar> out;
  for (const auto& [name, x] : inputs) {
    Matrix<Scalar> y(x.rows(), x.cols());
    for (Index i = 0; i < x.size(); ++i) y.data()[i] = Scalar(x.data()[i]);
    out.emplace(name, std::move(y));
  }
  return out;
}

/// One sequence in calls ending at `cuts`, by one of the functions of its row.
template <class Scalar>
[[nodiscard]] Tensors<Scalar> evaluate(Tensors<Scalar> (*row)(const Call&, const Tensors<Scalar>&),
                                       const Operator& op, const Call& call, const Tensors<double>& inputs,
                                       const std::vector<Index>& cuts) {
  return evaluate_in_calls<Scalar>(op, call, {as<Scalar>(inputs)}, cuts,
                                   [&](const Call& one, const std::vector<Tensors<Scalar>>& part) {
                                     return std::vector<Tensors<Scalar>>{row(one, part.front())};
                                   })
      .front();
}

}  // namespace samestate
