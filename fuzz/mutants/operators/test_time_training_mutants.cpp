#include <algorithm>

#include "fuzz/mutants/operators/changed_call.h"

/// Steps of test-time training: losses, rates, keys and the kind of step.
namespace samestate::mutants {
namespace {

/// A token with a zero key is mistaken for an absent token.
void zero_key_clears(ChangedCall& c) {
  const std::span<float> k = c.input("k");
  const std::span<float> S = c.output("S_next");
  const auto dk = static_cast<std::size_t>(c.width("k"));
  const std::size_t each = S.size() / std::max<std::size_t>(k.size() / dk, 1);
  for (std::size_t i = 0; i < k.size(); i += dk) {
    const std::span<float> key = k.subspan(i, dk);
    if (std::ranges::count(key, 0.0F) == std::ssize(key))
      std::ranges::fill(S.subspan(i / dk * each, each), 0.0F);
  }
}

}  // namespace

std::vector<Mutant> test_time_training_mutants() {
  std::vector<Mutant> out;
  const OperatorFault no_half = {"F", "loss_without_half", "the loss has no factor of 1/2",
                                 misread(mapped("eta", [](float eta) { return 2.0F * eta; }))};
  const OperatorFault next_key = {"F", "keys_of_the_next_token", "a token has the key of the next",
                                  misread(next_token("k"))};
  add_faults(out, "cpu.gradient_step.delta_rule",
             {no_half,
              next_key,
              {"F", "rate_within_one", "a rate above 1 is 1",
               misread(mapped("eta", [](float eta) { return std::min(eta, 1.0F); }))},
              {"F", "no_learning_rate", "the rate is 1", misread(filled("eta", 1.0F))},
              {"F", "up_the_gradient", "the step goes up the gradient",
               misread(mapped("eta", [](float eta) { return -eta; }))},
              {"F", "proximal_step", "the implicit step where the explicit one is meant",
               mistaken_for("cpu.proximal_step.delta_rule")}});
  add_faults(
      out, "cpu.proximal_step.delta_rule",
      {no_half,
       next_key,
       {"F", "zero_key_clears", "the state of a token without a key is zero", miswritten(zero_key_clears)},
       {"F", "whole_step", "1 / |k|^2 for eta / (1 + eta |k|^2)", misread(filled("eta", 1e12F))},
       {"F", "explicit_step", "the explicit step where the implicit one is meant",
        mistaken_for("cpu.gradient_step.delta_rule")}});
  return out;
}

}  // namespace samestate::mutants
