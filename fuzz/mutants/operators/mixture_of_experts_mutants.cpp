#include <algorithm>
#include <cmath>

#include "fuzz/mutants/operators/changed_call.h"

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

void frequency_of_other_kind(Call& c) { c.set("per_token", 1 - c.at("per_token")); }
Ties loss_ties(const Call& c) { return {{}, {"logits"}, {"load", "mean"}, c.at("N")}; }

void next_experts_matrix(Call& c, std::string_view name) {
  const std::span<float> w = c.input(name);
  std::rotate(w.begin(), w.begin() + std::ssize(w) / c.at("N"), w.end());
}
/// Tokens beyond an expert's capacity are dropped in public code; here the last one is.
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
  // Ties are the router's and the loss's to see: here tokens with tied logits are zero tokens.
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
