#include "fuzz/mutants/operators/changed_call.h"

/// Steps of test-time training: losses, rates, keys and the kind of the step.
namespace samestate::mutants {

std::vector<Mutant> test_time_training_mutants() {
  std::vector<Mutant> out;
  const OperatorFault no_half = {"F", "loss_without_half", "the loss has no factor of 1/2",
                                 misread(mapped("eta", [](float eta) { return 2.0F * eta; }))};
  const OperatorFault next_key = {"F", "keys_of_the_next_token", "a token has the key of the next",
                                  misread(next_token("k"))};
  add_faults(out, "cpu.gradient_step.delta_rule",
             {no_half,
              next_key,
              {"F", "no_learning_rate", "the rate is 1", misread(filled("eta", 1.0F))},
              {"F", "up_the_gradient", "the step goes up the gradient",
               misread(mapped("eta", [](float eta) { return -eta; }))},
              {"F", "proximal_step", "the implicit step where the explicit one is meant",
               mistaken_for("cpu.proximal_step.delta_rule")}});
  add_faults(out, "cpu.proximal_step.delta_rule",
             {no_half,
              next_key,
              {"F", "whole_step", "1 / |k|^2 for eta / (1 + eta |k|^2)", misread(filled("eta", 1e12F))},
              {"F", "explicit_step", "the explicit step where the implicit one is meant",
               mistaken_for("cpu.gradient_step.delta_rule")}});
  return out;
}

}  // namespace samestate::mutants
