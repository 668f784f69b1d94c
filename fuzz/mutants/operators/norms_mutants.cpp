#include <algorithm>
#include <cmath>

#include "fuzz/mutants/operators/changed_call.h"
#include "optimized/cpu/rounding.h"

/// Norms: M48-M50, M52-M54, and epsilons, means, weights and gates.
namespace samestate::mutants {
namespace {

using Call = ChangedCall;

float power(std::span<const float> x) {
  double sum = 0.0;
  for (float v : x) sum += static_cast<double>(v) * static_cast<double>(v);
  return static_cast<float>(sum);
}

/// y = factor(||x||^2, d) x for every row.
Change normed_by(float (*factor)(float, float)) {
  return [factor](Call& c) {
    const std::span<float> x = c.input("x");
    const std::span<float> y = c.output("y");
    const auto d = static_cast<std::size_t>(c.width("x"));
    for (std::size_t i = 0; i < x.size(); i += d) {
      const float f = factor(power(x.subspan(i, d)), static_cast<float>(d));
      for (std::size_t j = 0; j < d; ++j) y[i + j] = x[i + j] * f;
    }
  };
}
float clamped(float p, float) { return 1.0F / std::max(std::sqrt(p), 1e-6F); }
float outside(float p, float) { return 1.0F / (std::sqrt(p) + 1e-6F); }
float mean_epsilon(float p, float d) { return 1.0F / std::sqrt(d * (p / d + 1e-6F)); }

// Epsilon does not scale with x: if x is 2^20 times larger, epsilon vanishes; if x is d^1/2 times larger, it
// is epsilon / d.
void no_epsilon(Call& c) {
  c.each("x", [](float x) { return x * 0x1p20F; });
}
void epsilon_in_the_sum(Call& c) {
  c.each("x", [root = root_of(c.width("x"))](float x) { return x * root; });
}

void weight_plus_one(Call& c) {
  c.each("weight", [](float w) { return w + 1.0F; });
}
void weight_minus_one(Call& c) {
  c.each("weight", [](float w) { return w - 1.0F; });
}
/// The sum as a kernel computes it to avoid overflow.
void sum_within_bounds(Call& c) {
  const std::span<float> x = c.input("x");
  const auto d = static_cast<std::size_t>(c.width("x"));
  for (std::size_t i = 0; i < x.size(); i += d) {
    const float factor = std::sqrt(std::max(power(x.subspan(i, d)) / 1e12F, 1.0F));
    for (float& y : c.output("y").subspan(i, d)) y *= factor;
  }
}
float kept_from_minus_one(float w) { return std::max(w, -0.999F); }
void next_weight(Call& c) { rotate(c.input("weight"), 1); }

/// The norm of x includes the weights; the product of norm and weight is rounded to bf16 before the gate.
void rounded_before_gate(Call& c) {
  const std::span<float> x = c.input("x");
  const auto d = static_cast<std::size_t>(c.width("x"));
  for (std::size_t i = 0; i < x.size(); i += d) {
    const float f = 1.0F / std::sqrt(power(x.subspan(i, d)) / static_cast<float>(d) + 1e-6F);
    for (std::size_t j = 0; j < d; ++j) {
      const float z = c.input("z")[i + j];
      c.output("y")[i + j] = cpu::to_bf16(x[i + j] * f) * c.input("weight")[j] * z * sigmoid(z);
    }
  }
}
void gate_before_norm(Call& c) {
  const std::span<float> x = c.input("x");
  const std::span<float> z = c.input("z");
  for (std::size_t i = 0; i < x.size(); ++i) x[i] *= z[i] * sigmoid(z[i]);
  c.fill("z", 1.2784645F);  // its silu is 1
}

void mean_without_one(Call& c) {
  const auto D = static_cast<float>(c.width("x"));
  for (float& y : c.output("y")) y *= std::sqrt((D - 1.0F) / D);
}

}  // namespace

std::vector<Mutant> norms_mutants() {
  std::vector<Mutant> out;
  add_faults(out, "cpu.l2norm.fused",
             {{"M48", "norm_clamped", "x / max(||x||, eps)", miswritten(normed_by(clamped))},
              {"M49", "epsilon_outside_root", "x / (||x|| + eps)", miswritten(normed_by(outside))},
              {"M50", "rms_norm", "RMSNorm d^-1/2 for the l2 norm", miswritten(normed_by(mean_epsilon))},
              {"F", "no_epsilon", "epsilon is left out", misread(no_epsilon)},
              {"F", "mean_for_sum", "the mean of the squares where their sum is meant",
               miswritten(scaled("y", [](const Call& c) { return root_of(c.width("x")); }))}});
  add_faults(
      out, "cpu.rms_norm.fused",
      {{"M52", "weight_plus_one", "1 + w where w is meant", misread(weight_plus_one)},
       {"F", "no_epsilon", "epsilon is left out", misread(no_epsilon)},
       {"F", "epsilon_in_the_sum", "epsilon is added to the sum and not to the mean",
        misread(epsilon_in_the_sum)},
       {"F", "weight_of_the_next_column", "the weight is that of the next column", misread(next_weight)},
       {"F", "sum_within_bounds", "a sum of squares above 1e12 is 1e12", miswritten(sum_within_bounds)},
       {"F", "mean_without_one", "the mean is over D - 1", miswritten(mean_without_one)}});
  add_faults(
      out, "cpu.gated_rms_norm.fused",
      {{"M52", "weight_plus_one", "1 + w on the gated norm", misread(weight_plus_one)},
       {"M53", "gate_before_norm", "norm(x silu(z)) instead of norm(x) silu(z)", misread(gate_before_norm)},
       {"M54", "rounded_before_gate", "the normalised value is rounded to bf16 before weight and gate",
        miswritten(rounded_before_gate)},
       {"F", "no_epsilon", "epsilon is left out", misread(no_epsilon)},
       {"F", "gate_activated_twice", "silu(silu(z)) where silu(z) is meant",
        misread(mapped("z", [](float z) { return z / (1.0F + std::exp(-z)); }))},
       {"F", "x_and_gate_exchanged", "x is taken for the gate and the gate for x",
        misread(exchanged("x", "z"))}});
  add_faults(out, "cpu.gate_first_rms_norm.fused",
             {{"M53", "norm_before_gate", "norm(x) silu(z) instead of norm(x silu(z))",
               mistaken_for("cpu.gated_rms_norm.fused")},
              {"F", "no_epsilon", "epsilon is left out", misread(no_epsilon)},
              {"F", "no_gate", "the gate is left out", mistaken_for("cpu.rms_norm.fused")}});
  add_faults(
      out, "cpu.zero_centred_rms_norm.fused",
      {{"M52", "weight_without_one", "w where 1 + w is meant", misread(weight_minus_one)},
       {"M52", "one_added_twice", "2 + w where 1 + w is meant", misread(weight_plus_one)},
       {"F", "no_epsilon", "epsilon is left out", misread(no_epsilon)},
       {"F", "factor_kept_from_zero", "1 + w is 1e-3 at least",
        misread(mapped("weight", kept_from_minus_one))},
       {"F", "weight_of_the_next_column", "the weight is that of the next column", misread(next_weight)}});
  add_faults(out, "cpu.residual_rms_norm.fused",
             {{"M52", "weight_without_one", "w where 1 + w is meant", misread(weight_minus_one)},
              {"F", "residual_forgotten", "the residual is not added", misread(filled("residual", 0.0F))},
              {"F", "sum_without_residual", "the sum that is handed on is x alone",
               miswritten([](Call& c) { std::ranges::copy(c.input("x"), c.output("sum").begin()); })},
              {"F", "norm_for_sum", "the norm is handed on as the sum",
               miswritten([](Call& c) { std::ranges::copy(c.output("y"), c.output("sum").begin()); })}});
  return out;
}

}  // namespace samestate::mutants
