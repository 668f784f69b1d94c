#pragma once

#include <utility>

#include "reference/backward/head_gradients.h"
#include "tests/reference/backward/gradient_check.h"
#include "tests/reference/draw.h"

/// A head of the recurrent family as a list of tensors: q, k, v, then g and beta [T, 1] if the system reads
/// them, then the initial state; outputs are o and the final state.
namespace samestate::test {

template <class System>
[[nodiscard]] Tensors<double> head_tensors(const Sequence<double>& x) {
  Tensors<double> out{x.q, x.k, x.v};
  if (System::gated) out.emplace_back(x.g);
  if (System::delta) out.emplace_back(x.beta);
  out.push_back(x.initial_state);
  return out;
}

template <class System, class Scalar>
[[nodiscard]] Sequence<Scalar> head_of_tensors(const Tensors<Scalar>& x) {
  const Index T = x[0].rows();
  Sequence<Scalar> out{x[0],          x[1],    x[2], Vector<Scalar>::Zero(T), Vector<Scalar>::Ones(T),
                       Scalar(0.375), x.back()};
  std::size_t next = 3;
  if (System::gated) out.g = x[next++].col(0);
  if (System::delta) out.beta = x[next].col(0);
  return out;
}

template <class System, class Scalar>
[[nodiscard]] Tensors<Scalar> gradient_tensors(const HeadGradients<Scalar>& d) {
  Tensors<Scalar> out{d.q, d.k, d.v};
  if (System::gated) out.emplace_back(d.g);
  if (System::delta) out.emplace_back(d.beta);
  out.push_back(d.initial_state);
  return out;
}

/// The forward pass by a form: Sequence -> Trajectory.
template <class System, class Run>
[[nodiscard]] auto head_forward(Run run) {
  return [run](const auto& x) {
    auto y = run(head_of_tensors<System>(x));
    return std::decay_t<decltype(x)>{std::move(y.o), std::move(y.state)};
  };
}

/// The backward pass by a form: (Sequence, HeadCotangents) -> HeadGradients.
template <class System, class Run>
[[nodiscard]] auto head_backward(Run run) {
  return [run](const auto& x, const auto& d) {
    using Scalar = ScalarOf<decltype(x)>;
    return gradient_tensors<System>(run(head_of_tensors<System>(x), HeadCotangents<Scalar>{d[0], d[1]}));
  };
}

}  // namespace samestate::test
