#include <algorithm>
#include <cmath>
#include <numeric>

#include "fuzz/mutants/operators/changed_call.h"
#include "fuzz/mutants/operators/sixteen_bit.h"

/// Experts, their router and its loss: M81-M83, and choices, matrices and weights.
namespace samestate::mutants {
namespace {

using Call = ChangedCall;

void one_expert_fewer(Call& c) { c.set("K", std::max<std::int64_t>(c.at("K") - 1, 1)); }
void one_expert_more(Call& c) { c.set("K", std::min(c.at("K") + 1, c.at("N"))); }

void router_not_renormalised(Call& c) {
  const std::span<float> w = c.output("weights");
  for (std::size_t i = 0; i < w.size(); ++i) w[i] = w[i] == 0.0F ? 0.0F : c.output("probabilities")[i];
}
Ties router_ties(const Call& c) {
  Ties ties{{"router"}, {}, {"logits", "probabilities", "weights"}, c.at("N")};
  if (c.at("bias") == 1) ties.by_row.emplace_back("bias");
  return ties;
}

/// Computes the weights of a group-limited router from its logits; the default is right.
struct GroupRule {
  enum class Score { two_largest, largest, sum };
  Score score = Score::two_largest;
  bool interleaved = false;       ///< group of expert i is i mod G
  bool left_out_is_zero = false;  ///< choices in excluded groups count as zeros among the others
  bool rounded_choice = false;    ///< s + bias is kept in bf16
  bool biased_weight = false;
  bool of_softmax = false;  ///< s are softmax probabilities
  bool of_all = false;      ///< divided by the sum over all experts
  bool renormalised = true;
};

/// Returns the indices of `values` from the largest to the smallest; among equal ones the lower index comes
/// first.
std::vector<std::int64_t> descending(const std::vector<float>& values) {
  std::vector<std::int64_t> order(values.size());
  std::iota(order.begin(), order.end(), std::int64_t{0});
  std::ranges::stable_sort(order, std::greater<>(),
                           [&](std::int64_t i) { return values[static_cast<std::size_t>(i)]; });
  return order;
}

/// Recomputes a token's weights from the kernel's logits by a different rule.
void reroute(Call& c, const GroupRule& rule, std::span<const float> logits, std::span<float> weights) {
  const auto N = logits.size(), G = static_cast<std::size_t>(c.at("G"));
  std::vector<float> s(N), choice(N), score(G, 0.0F);
  std::ranges::transform(logits, s.begin(), sigmoid);
  if (rule.of_softmax) {
    float sum = 0.0F;
    const float most = *std::ranges::max_element(logits);
    for (std::size_t i = 0; i < N; ++i) sum += s[i] = std::exp(logits[i] - most);
    for (float& x : s) x /= sum;
  }
  for (std::size_t i = 0; i < N; ++i)
    choice[i] = s[i] + (c.at("bias") == 1 ? c.input("selection_bias")[i] : 0.0F);
  for (float& x : choice) x = rule.rounded_choice ? rounded(x, Format::bf16) : x;
  const auto group_of = [&](std::int64_t i) {
    return static_cast<std::size_t>(i) % (rule.interleaved ? G : N) / (rule.interleaved ? 1 : N / G);
  };
  std::vector<int> seen(G, 0);
  const int most = rule.score == GroupRule::Score::largest ? 1
                   : rule.score == GroupRule::Score::sum   ? static_cast<int>(N)
                                                           : 2;
  for (const std::int64_t i : descending(choice)) {
    if (seen[group_of(i)]++ < most) score[group_of(i)] += choice[static_cast<std::size_t>(i)];
  }
  std::vector<bool> kept(G, false);
  const auto groups = descending(score);
  for (std::int64_t m = 0; m < c.at("M"); ++m)
    kept[static_cast<std::size_t>(groups[static_cast<std::size_t>(m)])] = true;
  if (rule.left_out_is_zero) {
    for (std::size_t i = 0; i < N; ++i)
      choice[i] = kept[group_of(static_cast<std::int64_t>(i))] ? choice[i] : 0.0F;
    kept.assign(G, true);
  }
  std::vector<std::int64_t> chosen;
  for (const std::int64_t i : descending(choice)) {
    if (kept[group_of(i)] && std::ssize(chosen) < c.at("K")) chosen.push_back(i);
  }
  float sum = rule.of_all ? std::accumulate(s.begin(), s.end(), 0.0F) : 0.0F;
  std::ranges::fill(weights, 0.0F);
  for (const std::int64_t i : chosen) {
    const auto at = static_cast<std::size_t>(i);
    weights[at] = rule.biased_weight ? choice[at] : s[at];
    if (!rule.of_all) sum += weights[at];
  }
  for (float& w : weights) w *= c.input("scaling")[0] / (rule.renormalised ? sum : 1.0F);
}
CallFault rerouted(GroupRule rule) {
  return miswritten([=](Call& c) {
    const std::span<float> logits = c.output("logits"), weights = c.output("weights");
    const auto N = static_cast<std::size_t>(c.at("N"));
    for (std::size_t at = 0; at + N <= logits.size(); at += N)
      reroute(c, rule, logits.subspan(at, N), weights.subspan(at, N));
  });
}
Ties group_ties(const Call& c) {
  Ties ties{{"router"}, {}, {"logits", "probabilities", "weights"}, c.at("N")};
  if (c.at("bias") == 1) ties.by_row.emplace_back("selection_bias");
  return ties;
}

void frequency_of_other_kind(Call& c) { c.set("per_token", 1 - c.at("per_token")); }
Ties loss_ties(const Call& c) { return {{}, {"logits"}, {"load", "mean"}, c.at("N")}; }

void next_experts_matrix(Call& c, std::string_view name) {
  const std::span<float> w = c.input(name);
  std::rotate(w.begin(), w.begin() + std::ssize(w) / c.at("N"), w.end());
}
/// Public code drops tokens beyond an expert's capacity; this drops the last one.
void last_token_dropped(Call& c) {
  const std::span<float> y = c.output("y");
  if (c.call.tokens > 1) std::fill(y.end() - c.call.output("y").shape.back(), y.end(), 0.0F);
}
/// y as if the weights were the probabilities over all experts (MOE-4, E-11).
void not_renormalised(Call& c) {
  const std::int64_t N = c.at("N"), K = c.at("K"), D = c.call.output("y").shape.back();
  std::int64_t t = 0;
  each_row(c.input("logits"), N, [&](std::span<float> logits) {
    std::vector<float> e(logits.begin(), logits.end());
    std::ranges::sort(e, std::greater<>());
    float chosen = 0.0F, all = 0.0F;
    for (std::int64_t i = 0; i < N; ++i) {
      const float x = std::exp(e[static_cast<std::size_t>(i)] - e.front());
      all += x;
      if (i < K) chosen += x;
    }
    for (float& y : c.output("y").subspan(static_cast<std::size_t>(t++ * D), static_cast<std::size_t>(D)))
      y *= chosen / all;
  });
}

const OperatorFault kGateAndUp = {"F", "gate_and_up_exchanged", "up is activated and not the gate",
                                  misread(exchanged("gate", "up"))};
const OperatorFault kOneFewer = {"F", "one_expert_fewer", "K - 1 experts are chosen",
                                 misread(one_expert_fewer)};
const OperatorFault kNextDown = {"F", "down_of_the_next_expert", "an expert's down projection is the next's",
                                 misread([](Call& c) { next_experts_matrix(c, "down"); })};
const OperatorFault kLastDropped = {"F", "last_token_dropped", "the last token is dropped, as at capacity",
                                    miswritten(last_token_dropped)};

/// sigma(0) 2 = 1
void shared_expert_without_gate(Call& c) {
  c.fill("shared_gate", 0.0F);
  c.each("shared_down", [](float w) { return 2.0F * w; });
}

}  // namespace

std::vector<Mutant> mixture_of_experts_mutants() {
  std::vector<Mutant> out;
  add_faults(
      out, "cpu.expert_router.logits_first",
      {{"M81", "not_renormalised", "the weights of the chosen are not brought to one",
        miswritten(router_not_renormalised)},
       {"M82", "ties_to_the_higher", "of equal experts the higher", ties_upwards(router_ties)},
       kOneFewer,
       {"F", "one_expert_more", "K + 1 experts are chosen", misread(one_expert_more)},
       {"F", "no_bias", "the choice ignores the bias", misread(fixed("bias", 0))},
       {"F", "all_experts_keep_their_weight", "the weights of the rest are not zero", miswritten([](Call& c) {
          std::ranges::copy(c.output("probabilities"), c.output("weights").begin());
        })}});
  using Score = GroupRule::Score;
  add_faults(
      out, "cpu.group_limited_router.ordered",
      {{"M81", "not_renormalised", "the weights of the chosen are not brought to one",
        rerouted({.renormalised = false})},
       {"M82", "ties_to_the_higher", "of equal experts and groups the higher", ties_upwards(group_ties)},
       kOneFewer,
       {"F", "no_bias", "the choice ignores the bias", misread(fixed("bias", 0))},
       {"F", "bias_in_the_weight", "the bias moves the weights too", rerouted({.biased_weight = true})},
       {"F", "choice_in_16_bit", "score and bias are added in bf16", rerouted({.rounded_choice = true})},
       {"F", "weights_of_all", "weights are divided by the sum of all scores", rerouted({.of_all = true})},
       {"F", "no_scaling", "the factor of the weights is left out", misread(filled("scaling", 1.0F))},
       {"F", "group_by_its_largest", "a group's score is its largest choice",
        rerouted({.score = Score::largest})},
       {"F", "group_by_its_sum", "a group's score is the sum of all its choices",
        rerouted({.score = Score::sum})},
       {"F", "groups_not_limited", "the K largest of all groups",
        misread([](Call& c) { c.set("M", c.at("G")); })},
       {"F", "one_group_fewer", "M - 1 groups are kept, where their experts are enough", misread([](Call& c) {
          const std::int64_t fewer = c.at("M") - 1;
          if (fewer * (c.at("N") / c.at("G")) >= c.at("K")) c.set("M", fewer);
        })},
       {"F", "groups_interleaved", "group i mod G for groups of neighbours", rerouted({.interleaved = true})},
       {"F", "groups_left_out_are_zero", "choices of groups left out are zeros, above negative ones",
        rerouted({.left_out_is_zero = true})},
       {"F", "softmax_for_sigmoid", "choice and weights are those of a softmax",
        rerouted({.of_softmax = true})}});
  add_faults(
      out, "cpu.load_balance.direct",
      {{"M82", "ties_to_the_higher", "of equal experts the higher", ties_upwards(loss_ties)},
       {"M83", "frequency_of_other_kind", "frequencies by token for frequencies by assignment",
        misread(frequency_of_other_kind)},
       {"F", "mask_ignored", "padding counts", misread(filled("mask", 1.0F))},
       {"F", "first_choice_alone", "only the first choice counts", misread(fixed("K", 1))},
       {"F", "no_alpha", "alpha is left out", misread(filled("alpha", 1.0F))},
       {"F", "no_number_of_experts", "the factor N is left out",
        miswritten(scaled("loss", [](const Call& c) { return 1.0F / static_cast<float>(c.at("N")); }))},
       {"F", "mean_of_the_selection", "P_i is the fraction of selections (E-33)",
        miswritten([](Call& c) { std::ranges::copy(c.output("load"), c.output("mean").begin()); })}});
  // Ties are covered by the router and the loss: here tokens with tied logits are zero tokens.
  for (const char* kernel : {"cpu.mixture_of_experts.sorted", "cpu.mixture_of_experts.per_token"}) {
    add_faults(out, kernel,
               {{"M81", "not_renormalised", "the weights of the chosen are not brought to one",
                 miswritten(not_renormalised)},
                kGateAndUp,
                kOneFewer,
                kNextDown,
                {"F", "half_temperature", "logits are doubled",
                 misread(mapped("logits", [](float x) { return 2.0F * x; }))},
                kLastDropped});
  }
  add_faults(
      out, "cpu.qwen3_next_moe.sorted",
      {kGateAndUp,
       {"F", "shared_gate_and_up_exchanged", "up of the shared expert is activated and not its gate",
        misread(exchanged("shared_gate_proj", "shared_up"))},
       kOneFewer,
       {"F", "router_off_by_one", "an expert's row of the router is the next's",
        misread([](Call& c) { next_experts_matrix(c, "router"); })},
       {"F", "no_shared_expert", "the shared expert is left out", misread(filled("shared_down", 0.0F))},
       {"F", "shared_expert_without_gate", "the shared expert is not gated",
        misread(shared_expert_without_gate)},
       kNextDown,
       kLastDropped});
  return out;
}

}  // namespace samestate::mutants
