#pragma once

#include <string>
#include <vector>

#include "reference/activations.h"
#include "reference/error.h"
#include "reference/linear.h"

/// Mixture of experts (class C-MOE): which experts a token goes to, and with which weights. experts.h
/// evaluates them, and load_balance.h has the auxiliary loss. There are T tokens, N experts, and K experts
/// per token; scores must be finite.
namespace samestate {

namespace points {
inline constexpr PointRow kMixtureOfExpertsRows[] = {
    {"weights", "The weights of the chosen experts, after their division by their sum."},
    {"weights_of_logits",
     "The weights of the chosen experts, after a softmax of their logits alone.",
     PointUse::stored,
     {},
     "mixture_of_experts.weights"},
    {"logits", "The logits of the experts, after their projection.", PointUse::both},
};
inline constexpr PointTable mixture_of_experts{"mixture_of_experts", PointTier::equation,
                                               kMixtureOfExpertsRows};
}  // namespace points

/// How the K largest router probabilities become weights.
enum class TopKWeights {
  renormalised,  ///< divided by their sum: the document's code, Qwen3-Next (MOE-15, E-11)
  literal        ///< unchanged: the document's formula (MOE-4)
};

/// The experts of each token and their weights.
template <class Scalar>
struct Routing {
  Matrix<Scalar> logits;         ///< [T, N]
  Matrix<Scalar> probabilities;  ///< [T, N] router probabilities over all experts, before the selection
  Matrix<Index> experts;         ///< [T, K] in descending probability, each expert at most once per token
  Matrix<Scalar> weights;        ///< [T, K] the factors of the experts' outputs
};

/// The columns of the K largest scores of each row, largest first; among equal scores the LOWER column comes
/// first (EQUATIONS 5.8; MOE-3 and MOE-14 leave it open). scores: [T, N] -> [T, K]. Throws Error unless 1 <=
/// K <= N.
template <class Scalar>
[[nodiscard]] Matrix<Index> top_k(const Matrix<Scalar>& scores, Index K) {
  const Index N = scores.cols();
  if (K < 1 || K > N) {
    throw Error("top_k: K = " + std::to_string(K) + " of N = " + std::to_string(N) +
                " experts; choose K from 1 to N");
  }
  Matrix<Index> chosen(scores.rows(), K);
  for (Index t = 0; t < scores.rows(); ++t) {
    std::vector<bool> taken(static_cast<std::size_t>(N), false);
    for (Index r = 0; r < K; ++r) {
      Index best = -1;
      for (Index i = 0; i < N; ++i) {
        if (taken[static_cast<std::size_t>(i)]) continue;
        if (best < 0 || scores(t, best) < scores(t, i)) best = i;
      }
      taken[static_cast<std::size_t>(best)] = true;
      chosen(t, r) = best;
    }
  }
  return chosen;
}

/// p_(K) - p_(K+1) of each token, with p_(1) >= p_(2) ...: if it is below the error of a kernel's
/// probabilities, the kernel may rightly choose other experts, and its output proves nothing (EQUATIONS 8.2).
/// K = N has no other choice and gives 1, the most that two probabilities can differ. [T, N] -> [T]. Throws
/// Error unless 1 <= K <= N.
template <class Scalar>
[[nodiscard]] Vector<Scalar> selection_gap(const Matrix<Scalar>& probabilities, Index K) {
  const Index N = probabilities.cols();
  const Matrix<Index> order = top_k(probabilities, K < N ? K + 1 : K);
  Vector<Scalar> gap = Vector<Scalar>::Constant(probabilities.rows(), Scalar(1));
  for (Index t = 0; t < gap.size() && K < N; ++t) {
    gap(t) = probabilities(t, order(t, K - 1)) - probabilities(t, order(t, K));
  }
  return gap;
}

/// Throws Error unless experts is [T, K] with K >= 1, every entry is in 0..N-1, and no row has an entry
/// twice.
inline void require_selection(const Matrix<Index>& experts, Index T, Index N) {
  if (experts.rows() != T || experts.cols() < 1) {
    throw Error("routing: the selection is " + std::to_string(experts.rows()) + " x " +
                std::to_string(experts.cols()) + "; needed " + std::to_string(T) +
                " tokens x at least 1 expert");
  }
  for (Index t = 0; t < T; ++t) {
    for (Index r = 0; r < experts.cols(); ++r) {
      const Index e = experts(t, r);
      if (e < 0 || e >= N) {
        throw Error("routing: token " + std::to_string(t) + " goes to expert " + std::to_string(e) +
                    "; there are " + std::to_string(N) + ", numbered from 0");
      }
      for (Index s = 0; s < r; ++s) {
        if (experts(t, s) == e) {
          throw Error("routing: token " + std::to_string(t) + " goes to expert " + std::to_string(e) +
                      " twice; select each expert once (MOE-16)");
        }
      }
    }
  }
}

/// The routing of the given logits to a selection made elsewhere. Probabilities come from the logits and only
/// the choice is injected, so a kernel that flips a near tie is not charged with an arithmetic error
/// (EQUATIONS 8.2). logits: [T, N], experts: [T, K]. Throws Error if the selection is invalid
/// (require_selection), or if renormalised weights do not exist because every selected probability is 0.
template <class Scalar>
[[nodiscard]] Routing<Scalar> route_to(const Matrix<Scalar>& logits, const Matrix<Index>& experts,
                                       TopKWeights mode = TopKWeights::renormalised) {
  require_selection(experts, logits.rows(), logits.cols());
  Routing<Scalar> out{logits, softmax(logits), experts, Matrix<Scalar>(experts.rows(), experts.cols())};
  for (Index t = 0; t < experts.rows(); ++t) {
    Scalar sum(0);
    for (Index r = 0; r < experts.cols(); ++r) {
      out.weights(t, r) = out.probabilities(t, experts(t, r));
      sum += out.weights(t, r);
    }
    if (mode == TopKWeights::literal) continue;
    if (!(sum > Scalar(0))) {
      throw Error("routing: the probabilities of the experts of token " + std::to_string(t) +
                  " do not sum to a positive number; select others, or take finite logits");
    }
    for (Index r = 0; r < experts.cols(); ++r) out.weights(t, r) /= sum;  // MOE-15
  }
  out.weights = stored(std::move(out.weights), points::mixture_of_experts["weights"]);
  return out;
}

/// softmax over all N -> top K -> renormalise (MOE-13..15). Throws Error unless 1 <= K <= N.
template <class Scalar>
[[nodiscard]] Routing<Scalar> route(const Matrix<Scalar>& logits, Index K,
                                    TopKWeights mode = TopKWeights::renormalised) {
  const Matrix<Scalar> probabilities = softmax(logits);
  return route_to(logits, top_k(probabilities, K), mode);
}

/// The renormalised routing to a selection made elsewhere, by the other path: softmax over the selected
/// LOGITS (EQ-20). Throws Error if the selection is invalid.
template <class Scalar>
[[nodiscard]] Routing<Scalar> route_by_logits_to(const Matrix<Scalar>& logits, const Matrix<Index>& experts) {
  require_selection(experts, logits.rows(), logits.cols());
  Matrix<Scalar> selected(experts.rows(), experts.cols());
  for (Index t = 0; t < experts.rows(); ++t) {
    for (Index r = 0; r < experts.cols(); ++r) selected(t, r) = logits(t, experts(t, r));
  }
  return {logits, softmax(logits), experts,
          stored(softmax(selected), points::mixture_of_experts["weights_of_logits"])};
}

/// The renormalised routing by the other path: top K of the LOGITS, then softmax over those (EQ-20). It
/// chooses the same experts unless probabilities round to a tie although their logits differ.
template <class Scalar>
[[nodiscard]] Routing<Scalar> route_by_logits(const Matrix<Scalar>& logits, Index K) {
  return route_by_logits_to(logits, top_k(logits, K));
}

/// Router logits x W_g^T + b (MOE-2, MOE-10: the formula has no bias, the code has one). x: [T, D], weight:
/// [N, D], bias: [N] or empty -> [T, N]. Throws Error if the sizes disagree.
template <class Scalar>
[[nodiscard]] Matrix<Scalar> router_logits(const Matrix<Scalar>& x, const Matrix<Scalar>& weight,
                                           const Vector<Scalar>& bias = {}) {
  return linear(x, weight, bias, points::mixture_of_experts["logits"]);
}

}  // namespace samestate
