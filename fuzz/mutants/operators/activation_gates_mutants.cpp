#include <cmath>

#include "fuzz/mutants/operators/changed_call.h"
#include "optimized/cpu/rounding.h"

/// Gates of the gated delta rule: M15, M55-M59, and rates, biases and inputs.
namespace samestate::mutants {
namespace {

using Call = ChangedCall;

void bf16_beta(Call& c) {
  for (float& x : c.output("beta")) x = cpu::to_bf16(x);
}
void silu_beta(Call& c) {
  for (std::size_t i = 0; i < c.output("beta").size(); ++i) c.output("beta")[i] *= c.input("b")[i];
}
void softplus_overflows(Call& c) {
  const std::span<float> g = c.output("g");
  const std::size_t H = c.input("A_log").size();
  for (std::size_t i = 0; i < g.size(); ++i) {
    const float x = c.input("a")[i] + c.input("dt_bias")[i % H];
    if (x > 15.0F) g[i] = -std::exp(c.input("A_log")[i % H]) * std::log(1.0F + std::exp(x));
  }
}
void exponentiated(Call& c) {
  for (float& g : c.output("g")) g = std::exp(g);
}
/// softplus(a + log(1 - e^-a)) = a
float linear_above_5(float a) { return a > 5.0F ? a + std::log1p(-std::exp(-a)) : a; }

}  // namespace

std::vector<Mutant> activation_gates_mutants() {
  std::vector<Mutant> out;
  add_faults(
      out, "cpu.activation_gates.branchless",
      {{"M15", "exponentiated", "e^g where g is meant", miswritten(exponentiated)},
       {"M55", "bf16_beta", "beta is rounded to bf16", miswritten(bf16_beta)},
       {"M56", "silu_beta", "beta = silu(b)", miswritten(silu_beta)},
       {"M57", "rate_of_rate", "-exp(A_log) of a value that is -exp(A_log) already",
        misread(mapped("A_log", [](float a) { return -std::exp(a); }))},
       {"M58", "softplus_overflows", "log(1 + exp(x)) without a branch for large x",
        miswritten(softplus_overflows)},
       {"M59", "bf16_rate", "A_log is held in bf16",
        misread(mapped("A_log", [](float a) { return cpu::to_bf16(a); }))},
       {"F", "no_bias", "dt_bias is left out", misread(filled("dt_bias", 0.0F))},
       {"F", "rate_inverted", "e^-A_log", misread(mapped("A_log", [](float a) { return -a; }))},
       {"F", "a_and_b_exchanged", "a is taken for b and b for a", misread(exchanged("a", "b"))},
       {"F", "rate_of_the_next_head", "the rate is that of the next head",
        misread([](Call& c) { rotate(c.input("A_log"), 1); })},
       {"F", "beta_doubled", "beta = 2 sigma(b)",
        miswritten(scaled("beta", [](const Call&) { return 2.0F; }))},
       {"F", "softplus_linear_above_5", "softplus(a) = a for a > 5", misread(mapped("a", linear_above_5))}});
  return out;
}

}  // namespace samestate::mutants
