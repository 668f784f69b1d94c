#pragma once

#include <string>
#include <vector>

#include "reference/mixture_of_experts.h"

/// DeepSeek-V3's router (EQUATIONS 5.8; not in the documents).
namespace samestate {

/// The N experts form G groups of N / G neighbours; a token chooses K experts out of its best M groups.
template <class Scalar>
struct GroupLimitedRouter {
  Vector<Scalar> selection_bias;  ///< [N] or empty; moves the choice, never the weight
  Index groups = 1;               ///< G
  Index groups_kept = 1;          ///< M
  Index experts_per_token = 1;    ///< K
  Scalar scaling{1};              ///< multiplies the renormalised weights; 2.5 in DeepSeek-V3
};

/// s = sigma(logits); choice = s + bias; a group's score is the sum of its two largest choices (one, in a
/// group of one); the K largest choices of the M best groups; w = scaling s / sum s. Ties go to the lower
/// index. logits: [T, N]; `probabilities` of the routing are s. Throws Error where N does not divide into the
/// groups, M is not in 1..G, K not in 1..M N / G, or the bias has another length.
template <class Scalar>
[[nodiscard]] Routing<Scalar> route_group_limited(const Matrix<Scalar>& logits,
                                                  const GroupLimitedRouter<Scalar>& router) {
  const Index T = logits.rows();
  const Index N = logits.cols();
  const Index G = router.groups;
  const Index M = router.groups_kept;
  const Index K = router.experts_per_token;
  if (G < 1 || N < G || N % G != 0) {
    throw Error("group-limited router: " + std::to_string(N) + " experts do not divide into " +
                std::to_string(G) + " groups");
  }
  const Index width = N / G;
  if (M < 1 || M > G || K < 1 || K > M * width) {
    throw Error("group-limited router: " + std::to_string(K) + " experts of " + std::to_string(M) +
                " groups; there are " + std::to_string(G) + " groups of " + std::to_string(width));
  }
  if (router.selection_bias.size() != 0 && router.selection_bias.size() != N) {
    throw Error("group-limited router: a bias of " + std::to_string(router.selection_bias.size()) + " for " +
                std::to_string(N) + " experts");
  }

  Routing<Scalar> out{logits, logistic(logits), Matrix<Index>(T, K), Matrix<Scalar>(T, K)};
  Matrix<Scalar> choice = out.probabilities;
  if (router.selection_bias.size() != 0) choice.rowwise() += router.selection_bias.transpose();

  for (Index t = 0; t < T; ++t) {
    Matrix<Scalar> group_score(1, G);
    for (Index group = 0; group < G; ++group) {
      const Matrix<Scalar> members = choice.block(t, group * width, 1, width);
      const Matrix<Index> best = top_k(members, width < 2 ? width : 2);
      Scalar score(0);
      for (Index r = 0; r < best.cols(); ++r) score += members(0, best(0, r));
      group_score(0, group) = score;
    }
    std::vector<bool> kept(static_cast<std::size_t>(G), false);
    const Matrix<Index> best_groups = top_k(group_score, M);
    for (Index r = 0; r < M; ++r) kept[static_cast<std::size_t>(best_groups(0, r))] = true;

    std::vector<Index> candidates;  // ascending, so that the tie rule of top_k is that of the experts
    for (Index i = 0; i < N; ++i) {
      if (kept[static_cast<std::size_t>(i / width)]) candidates.push_back(i);
    }
    Matrix<Scalar> of_candidates(1, M * width);
    for (std::size_t c = 0; c < candidates.size(); ++c) {
      of_candidates(0, static_cast<Index>(c)) = choice(t, candidates[c]);
    }
    const Matrix<Index> best = top_k(of_candidates, K);
    Scalar sum(0);
    for (Index r = 0; r < K; ++r) {
      out.experts(t, r) = candidates[static_cast<std::size_t>(best(0, r))];
      out.weights(t, r) = out.probabilities(t, out.experts(t, r));
      sum += out.weights(t, r);
    }
    for (Index r = 0; r < K; ++r) out.weights(t, r) *= router.scaling / sum;
  }
  out.weights = stored(std::move(out.weights));
  return out;
}

}  // namespace samestate
