#pragma once

#include <string>

#include "reference/activations.h"
#include "reference/error.h"
#include "reference/linear.h"
#include "reference/mixture_of_experts.h"

/// The router of the dendritic layer, for the tokens of one head (EQUATIONS 7.3 steps 2-4): Es branches are
/// always active, and K of the other E - Es are chosen by their softmax; among equals the lower index wins
/// . selection_gap in mixture_of_experts.h says how far a token is from another choice (8.2).
namespace samestate {

namespace points {
inline constexpr PointRow kDendriticRouterRows[] = {
    {"logits", "The logits of the branches that are chosen from, after their projection.", PointUse::both},
};
inline constexpr PointTable dendritic_router{"dendritic_router", PointTier::equation, kDendriticRouterRows};
}  // namespace points

/// Branch counts of one head.
struct BranchCounts {
  Index branches = 1;  ///< E
  Index shared = 1;    ///< Es, the first ones
  Index routed = 0;    ///< K, chosen from the E - Es others

  [[nodiscard]] Index candidates() const { return branches - shared; }
};

/// Throws Error for negative counts, for E < Es + K, and for Es = K = 0, where no branch would ever be
/// active.
inline void require_branch_counts(const BranchCounts& n) {
  const std::string counts = "branches=" + std::to_string(n.branches) +
                             ", shared=" + std::to_string(n.shared) + ", routed=" + std::to_string(n.routed) +
                             ": ";
  if (n.shared < 0 || n.routed < 0) throw Error(counts + "shared and routed must not be negative");
  if (n.branches < n.shared + n.routed) throw Error(counts + "branches must be at least shared + routed");
  if (n.shared + n.routed == 0)
    throw Error(counts + "no branch is active; shared or routed must be positive");
}

/// How shared and routed weights are normalised to the sum 1.
enum class WeightRule {
  /// R1 (DEND-10 resolved, A-06, A-07): each shared branch gets 1/Es, the chosen probabilities are divided by
  /// their sum, and then all weights are divided by their total.
  renormalise_routed,
  /// R2, the literal words of DEND-10: each shared branch gets 1, the chosen probabilities stay as they are,
  /// and all weights are divided by their total.
  literal
};

/// The router's decisions for the tokens of one head.
template <class Scalar>
struct DendriticRouting {
  Matrix<Scalar> logits;         ///< [T, E - Es], without columns if K = 0 (A-10)
  Matrix<Scalar> probabilities;  ///< [T, E - Es], their softmax
  Matrix<Index> selected;  ///< [T, K] candidates, the most probable first; branch = Es + candidate (A-09)
  Matrix<Scalar> weights;  ///< omega [T, E]
  Matrix<bool> mask;       ///< mu [T, E], computed from the indices and not from the weights (A-11)
};

/// omega and mu of a given choice (steps 3-4), made here or by the code under test (8.2). selected: [T, K]
/// distinct candidates in 0..E-Es-1; chosen: [T, K] their probabilities, >= 0, of which only the proportions
/// matter under `renormalise_routed`. Throws Error if shapes, indices or values are invalid, or if the
/// weights of a token sum to zero.
template <class Scalar>
[[nodiscard]] DendriticRouting<Scalar> injected_routing(const Matrix<Index>& selected,
                                                        const Matrix<Scalar>& chosen, const BranchCounts& n,
                                                        WeightRule rule = WeightRule::renormalise_routed) {
  require_branch_counts(n);
  if (selected.cols() != n.routed || chosen.cols() != n.routed || chosen.rows() != selected.rows()) {
    throw Error("routing: indices are " + std::to_string(selected.rows()) + " x " +
                std::to_string(selected.cols()) + ", weights " + std::to_string(chosen.rows()) + " x " +
                std::to_string(chosen.cols()) + "; both must be T x routed=" + std::to_string(n.routed));
  }
  const Index T = selected.rows();
  const bool literal = rule == WeightRule::literal;
  DendriticRouting<Scalar> out;
  out.selected = selected;
  out.weights = Matrix<Scalar>::Zero(T, n.branches);
  out.mask = Matrix<bool>::Constant(T, n.branches, false);
  const Scalar shared =
      literal || n.shared == 0 ? Scalar(1) : Scalar(1) / Scalar(static_cast<double>(n.shared));
  for (Index t = 0; t < T; ++t) {
    const std::string token = "routing: token " + std::to_string(t) + ": ";
    for (Index e = 0; e < n.shared; ++e) {
      out.weights(t, e) = shared;
      out.mask(t, e) = true;
    }
    Scalar routed(0);
    for (Index i = 0; i < n.routed; ++i) {
      if (!(chosen(t, i) >= Scalar(0))) throw Error(token + "a weight is negative or no number");
      routed += chosen(t, i);
    }
    if (n.routed > 0 && !(routed > Scalar(0)) && (!literal || n.shared == 0)) {
      throw Error(token + "the weights of the chosen branches sum to zero");
    }
    for (Index i = 0; i < n.routed; ++i) {
      const Index candidate = selected(t, i);
      if (candidate < 0 || candidate >= n.candidates()) {
        throw Error(token + "branch index " + std::to_string(candidate) + ", must lie in 0.." +
                    std::to_string(n.candidates() - 1));
      }
      const Index e = n.shared + candidate;
      if (out.mask(t, e)) throw Error(token + "branch index " + std::to_string(candidate) + " twice");
      out.weights(t, e) = literal ? chosen(t, i) : Scalar(chosen(t, i) / routed);
      out.mask(t, e) = true;
    }
    Scalar sum(0);
    for (Index e = 0; e < n.branches; ++e) sum += out.weights(t, e);
    for (Index e = 0; e < n.branches; ++e) out.weights(t, e) /= sum;
  }
  return out;
}

/// Steps 2-4 from the projected queries, before expansion, convolution and norm (DEND-6..11). q: [T, d],
/// router: [E - Es, d] without bias. If K = 0 the router is not evaluated. Throws Error if sizes disagree,
/// and as require_branch_counts does.
template <class Scalar>
[[nodiscard]] DendriticRouting<Scalar> route_branches(const Matrix<Scalar>& q, const Matrix<Scalar>& router,
                                                      const BranchCounts& n,
                                                      WeightRule rule = WeightRule::renormalise_routed) {
  require_branch_counts(n);
  if (router.rows() != n.candidates()) {
    throw Error("router: weight of " + std::to_string(router.rows()) +
                " rows, must be branches - shared = " + std::to_string(n.candidates()));
  }
  const Matrix<Scalar> logits =
      n.routed > 0 ? linear(q, router, points::dendritic_router["logits"]) : Matrix<Scalar>(q.rows(), 0);
  const Matrix<Scalar> p = softmax(logits);
  const Matrix<Index> selected = n.routed > 0 ? top_k(p, n.routed) : Matrix<Index>(q.rows(), 0);
  Matrix<Scalar> chosen(q.rows(), n.routed);
  for (Index t = 0; t < q.rows(); ++t) {
    for (Index i = 0; i < n.routed; ++i) chosen(t, i) = p(t, selected(t, i));
  }
  DendriticRouting<Scalar> out = injected_routing(selected, chosen, n, rule);
  out.logits = logits;
  out.probabilities = p;
  return out;
}

}  // namespace samestate
