#pragma once

#include <utility>

#include "reference/backward/mixture_of_experts.h"
#include "reference/layers/qwen3_next_moe.h"

namespace samestate {

/// The gradients of the mixture-of-experts block of Qwen3-Next, in the shapes of its inputs.
template <class Scalar>
struct Qwen3NextMoeGradients {
  Matrix<Scalar> x;  ///< [T, D] through experts, shared expert, its gate and the router
  Qwen3NextMoeWeights<Scalar> weights;
};

/// The gradients of the block with the selection of `routing`, which is a constant; its weights are those of
/// the router, by `mode`. dy: [T, D]. d_probabilities: [T, N] of the router's probabilities (the auxiliary
/// loss), or 0 x 0. Throws Error if sizes disagree.
template <class Scalar>
[[nodiscard]] Qwen3NextMoeGradients<Scalar> qwen3_next_moe_backward(
    const Matrix<Scalar>& x, const Qwen3NextMoeWeights<Scalar>& weights, const Routing<Scalar>& routing,
    TopKWeights mode, const Matrix<Scalar>& dy, const Matrix<Scalar>& d_probabilities = {}) {
  MixtureGradients<SwiGluExpert<Scalar>, Scalar> routed =
      mixture_of_experts_backward(x, routing, weights.experts, dy);
  const Qwen3NextMoe<Scalar> out = qwen3_next_moe_routed(x, weights, routing);
  const Matrix<Scalar> d_shared = out.gate.col(0).asDiagonal() * dy;
  ExpertGradients<SwiGluExpert<Scalar>, Scalar> shared = expert_backward(weights.shared, x, d_shared);
  const Matrix<Scalar> before_gate = linear(x, weights.shared_gate, points::qwen3_next_moe["shared_gate"]);
  const Matrix<Scalar> d_gate = dy.cwiseProduct(out.shared).rowwise().sum();
  LinearGradients<Scalar> gate =
      linear_backward<Scalar>(x, weights.shared_gate, d_gate.cwiseProduct(logistic_slope(before_gate)));
  LinearGradients<Scalar> router =
      linear_backward(x, weights.router, route_backward(routing, mode, routed.weights, d_probabilities));
  return {routed.x + shared.x + gate.x + router.x,
          {std::move(router.weight), std::move(routed.experts), std::move(shared.weights),
           std::move(gate.weight)}};
}

}  // namespace samestate
