#pragma once

#include <vector>

#include "reference/experts.h"

/// The mixture-of-experts block of Qwen3-Next (EQUATIONS 5.8, CFG-12): top-K SwiGLU experts with renormalised
/// weights, plus a shared expert with a gate of its own.
namespace samestate {

namespace points {
inline constexpr PointRow kQwen3NextMoeRows[] = {
    {"shared_down", "The output of the shared expert, after its projection.", PointUse::both, "shared"},
    {"shared_hidden", "The hidden row of the shared expert, after silu(gate) up.", PointUse::stored,
     "shared"},
    {"shared_gate", "The gate of the shared expert, after its projection and before its logistic function.",
     PointUse::both},
};
inline constexpr PointTable qwen3_next_moe{"qwen3_next_moe", PointTier::layer, kQwen3NextMoeRows};
}  // namespace points

/// Weights as in public checkpoints. D is the model width, N the number of experts.
template <class Scalar>
struct Qwen3NextMoeWeights {
  Matrix<Scalar> router;                      ///< [N, D], no bias
  std::vector<SwiGluExpert<Scalar>> experts;  ///< N
  SwiGluExpert<Scalar> shared;
  Matrix<Scalar> shared_gate;  ///< [1, D]
};

/// The output and intermediate results: a flipped routing choice is seen in `routing` and not covered by a
/// tolerance (EQUATIONS 8.2).
template <class Scalar>
struct Qwen3NextMoe {
  Matrix<Scalar> y;         ///< [T, D] routed + gate * shared
  Matrix<Scalar> routed;    ///< [T, D]
  Matrix<Scalar> shared;    ///< [T, D] output of the shared expert, before its gate
  Matrix<Scalar> gate;      ///< [T, 1] sigma(x w_sg)
  Routing<Scalar> routing;  ///< logits, probabilities, experts, weights
};

/// routed + gate * shared, [T, D] each and a gate [T, 1].
template <class Scalar>
[[nodiscard]] Matrix<Scalar> with_shared(const Matrix<Scalar>& routed, const Matrix<Scalar>& shared,
                                         const Matrix<Scalar>& gate) {
  return routed + gate.col(0).asDiagonal() * shared;
}

/// The block with a given routing, which need not be its own. x: [T, D]. Throws Error if sizes disagree,
/// there are no experts, or the selection is invalid.
template <class Scalar>
[[nodiscard]] Qwen3NextMoe<Scalar> qwen3_next_moe_routed(const Matrix<Scalar>& x,
                                                         const Qwen3NextMoeWeights<Scalar>& weights,
                                                         Routing<Scalar> routing,
                                                         ExpertForm form = ExpertForm::loop) {
  if (weights.shared_gate.rows() != 1) {
    throw Error("Qwen3-Next MoE: the shared gate has " + std::to_string(weights.shared_gate.rows()) +
                " rows; it is one number a token");
  }
  Qwen3NextMoe<Scalar> out;
  out.routed = mixture_of_experts(x, routing, weights.experts, form);
  // These points are separate ones, because a kernel that fuses the shared expert with its gate stores
  // another expert's output and not this one.
  out.shared = linear(weights.shared.activated(x, points::qwen3_next_moe["shared_hidden"]),
                      weights.shared.down, points::qwen3_next_moe["shared_down"]);
  if (out.shared.cols() != x.cols()) {
    throw Error("Qwen3-Next MoE: the shared expert gives " + std::to_string(out.shared.cols()) +
                " columns, x has " + std::to_string(x.cols()));
  }
  out.gate = logistic(linear(x, weights.shared_gate, points::qwen3_next_moe["shared_gate"]));
  out.y = with_shared(out.routed, out.shared, out.gate);
  out.routing = std::move(routing);
  return out;
}

/// The block with its own router, which chooses K experts per token. x: [T, D]. Throws Error if sizes
/// disagree, unless 1 <= K <= N, and if the router's N is not the number of experts.
template <class Scalar>
[[nodiscard]] Qwen3NextMoe<Scalar> qwen3_next_moe(const Matrix<Scalar>& x,
                                                  const Qwen3NextMoeWeights<Scalar>& weights, Index K,
                                                  ExpertForm form = ExpertForm::loop,
                                                  TopKWeights mode = TopKWeights::renormalised) {
  if (weights.router.rows() != static_cast<Index>(weights.experts.size())) {
    throw Error("Qwen3-Next MoE: a router of " + std::to_string(weights.router.rows()) + " experts over " +
                std::to_string(weights.experts.size()));
  }
  return qwen3_next_moe_routed(x, weights, route(router_logits(x, weights.router), K, mode), form);
}

}  // namespace samestate
