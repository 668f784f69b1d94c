#pragma once

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "reference/mixture_of_experts.h"

/// DeepSeek-V3's router (EQUATIONS 5.8; not in the documents).
namespace samestate {

namespace points {
inline constexpr PointRow kGroupLimitedRouterRows[] = {
    {"scores", "The score of every expert, after the logistic function of its logit."},
    {"weights", "The weights of the chosen experts, after their division by their sum and the scaling."},
};
inline constexpr PointTable group_limited_router{"group_limited_router", PointTier::equation,
                                                 kGroupLimitedRouterRows};
}  // namespace points

/// The N experts form G groups of N / G neighbours; a token chooses K experts out of its best M groups.
template <class Scalar>
struct GroupLimitedRouter {
  Vector<Scalar> selection_bias;  ///< [N] or empty; affects the choice, never the weight
  Index groups = 1;               ///< G
  Index groups_kept = 1;          ///< M
  Index experts_per_token = 1;    ///< K
  Scalar scaling{1};              ///< multiplies the renormalised weights; 2.5 in DeepSeek-V3
};

/// Throws Error if G does not divide N, M is not in 1..G, or K is not in 1..M N / G. The message says which
/// of them it is, what is allowed, and what to write.
inline void require_groups(Index N, Index G, Index M, Index K) {
  const auto is = [](const char* size, Index value) { return size + ("=" + std::to_string(value)); };
  if (G < 1) throw Error(is("G", G) + ": there is at least one group; " + is("write G", 1) + " or more");
  if (N < G || N % G != 0) {
    throw Error(is("N", N) + ": the experts do not divide into " + is("G", G) + " groups; write " +
                is("N", (N / G + 1) * G) + " or another multiple of G");
  }
  const Index width = N / G;
  if (M < 1 || M > G) {
    throw Error(is("M", M) + ": of " + is("G", G) + " groups 1.." + std::to_string(G) + " are kept; write " +
                is("M", M < 1 ? 1 : G) + (M < 1 ? "" : " or a larger G"));
  }
  if (K < 1 || K > M * width) {
    throw Error(is("K", K) + ": the " + is("M", M) + " groups kept have " + std::to_string(M * width) +
                " experts, N / G = " + std::to_string(width) + " each; write " +
                is("K", K < 1 ? 1 : M * width) +
                (K < 1   ? " or more"
                 : M < G ? " or less, or a larger M"
                         : " or less, or a larger N"));
  }
}

/// sigma of logits whose results are compared and divided by their sum. Even the smallest needs a small
/// relative error, so (1 + tanh(x / 2)) / 2 will not do.
template <class Scalar>
[[nodiscard]] Matrix<Scalar> expert_scores(const Matrix<Scalar>& logits) {
  return logits.unaryExpr([](const Scalar& e) { return logistic_by_exp(e); });
}

/// Probabilities s = sigma(logits) [T, N] and choices s + bias [T, N], of a routing that has not chosen yet.
/// Throws Error as require_groups does, and if the bias has another length.
template <class Scalar>
[[nodiscard]] Routing<Scalar> scored(const Matrix<Scalar>& logits, const GroupLimitedRouter<Scalar>& router,
                                     Matrix<Scalar>& choice) {
  const Index T = logits.rows(), N = logits.cols(), K = router.experts_per_token;
  require_groups(N, router.groups, router.groups_kept, K);
  if (router.selection_bias.size() != 0 && router.selection_bias.size() != N) {
    throw Error("group-limited router: a bias of " + std::to_string(router.selection_bias.size()) +
                " elements for N=" + std::to_string(N) + " experts; give one each, or none");
  }
  Routing<Scalar> out{logits, stored(expert_scores(logits), points::group_limited_router["scores"]),
                      Matrix<Index>(T, K), Matrix<Scalar>(T, K)};
  choice = out.probabilities;
  if (router.selection_bias.size() != 0) choice.rowwise() += router.selection_bias.transpose();
  return out;
}

/// w = scaling s / sum s over the experts chosen.
template <class Scalar>
void weigh_chosen(Routing<Scalar>& out, const Scalar& scaling) {
  for (Index t = 0; t < out.experts.rows(); ++t) {
    Scalar sum(0);
    for (Index r = 0; r < out.experts.cols(); ++r) {
      out.weights(t, r) = out.probabilities(t, out.experts(t, r));
      sum += out.weights(t, r);
    }
    for (Index r = 0; r < out.experts.cols(); ++r) out.weights(t, r) *= scaling / sum;
  }
  out.weights = stored(std::move(out.weights), points::group_limited_router["weights"]);
}

/// s = sigma(logits), which a kernel may store; choice = s + bias; a group's score is the sum of its two
/// largest choices (of its only one if the group has one expert); the K largest choices in the M best groups
/// are taken; w = scaling s / sum s. Ties go to the lower index. logits: [T, N]; `probabilities` of the
/// routing are s. Throws Error if G does not divide N, M is not in 1..G, K is not in 1..M N / G, or the bias
/// has another length.
template <class Scalar>
[[nodiscard]] Routing<Scalar> route_group_limited(const Matrix<Scalar>& logits,
                                                  const GroupLimitedRouter<Scalar>& router) {
  Matrix<Scalar> choice;
  Routing<Scalar> out = scored(logits, router, choice);
  const Index N = logits.cols(), G = router.groups, M = router.groups_kept, K = router.experts_per_token;
  const Index width = N / G;
  for (Index t = 0; t < logits.rows(); ++t) {
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

    std::vector<Index> candidates;  // ascending, so that top_k breaks ties by the index of the expert
    for (Index i = 0; i < N; ++i) {
      if (kept[static_cast<std::size_t>(i / width)]) candidates.push_back(i);
    }
    Matrix<Scalar> of_candidates(1, M * width);
    for (std::size_t c = 0; c < candidates.size(); ++c) {
      of_candidates(0, static_cast<Index>(c)) = choice(t, candidates[c]);
    }
    const Matrix<Index> best = top_k(of_candidates, K);
    for (Index r = 0; r < K; ++r) out.experts(t, r) = candidates[static_cast<std::size_t>(best(0, r))];
  }
  weigh_chosen(out, router.scaling);
  return out;
}

/// The same result from one descending order of all experts: the first two of each group give its score, and
/// the first K in the groups that are kept are chosen. Throws Error likewise.
template <class Scalar>
[[nodiscard]] Routing<Scalar> route_group_limited_in_order(const Matrix<Scalar>& logits,
                                                           const GroupLimitedRouter<Scalar>& router) {
  Matrix<Scalar> choice;
  Routing<Scalar> out = scored(logits, router, choice);
  const auto N = static_cast<std::size_t>(logits.cols()), G = static_cast<std::size_t>(router.groups);
  std::vector<Index> experts(N), groups(G);
  for (Index t = 0; t < logits.rows(); ++t) {
    std::iota(experts.begin(), experts.end(), Index{0});
    std::stable_sort(experts.begin(), experts.end(),
                     [&](Index i, Index j) { return choice(t, j) < choice(t, i); });
    std::vector<Scalar> score(G, Scalar(0));
    std::vector<int> of_group(G, 0);
    const auto group_of = [&](Index expert) { return static_cast<std::size_t>(expert) / (N / G); };
    for (const Index expert : experts) {
      if (of_group[group_of(expert)]++ < 2) score[group_of(expert)] += choice(t, expert);
    }
    std::iota(groups.begin(), groups.end(), Index{0});
    std::stable_sort(groups.begin(), groups.end(), [&](Index g, Index h) {
      return score[static_cast<std::size_t>(h)] < score[static_cast<std::size_t>(g)];
    });
    std::vector<bool> kept(G, false);
    for (Index m = 0; m < router.groups_kept; ++m)
      kept[static_cast<std::size_t>(groups[static_cast<std::size_t>(m)])] = true;
    Index rank = 0;
    for (const Index expert : experts) {
      if (kept[group_of(expert)] && rank < router.experts_per_token) out.experts(t, rank++) = expert;
    }
  }
  weigh_chosen(out, router.scaling);
  return out;
}

}  // namespace samestate
