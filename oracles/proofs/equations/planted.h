#pragma once

#include <algorithm>

#include "oracles/proofs/equations/computation.h"
#include "oracles/proofs/equations/data.h"
#include "reference/activations.h"
#include "reference/costs.h"
#include "reference/retention.h"

/// Computations of rows that take the object they check as a parameter: the row passes the reference, and a
/// test passes one with a fault and expects the row to fail.
namespace samestate {

/// GDN-17: the delta correction. `Rule` steps as GatedDeltaRule does; the printed update is linear attention
/// with a scalar gate, the state of Retention on beta v.
template <class Rule>
[[nodiscard]] Finding finding_of_the_write() {
  const Sequence<double> twice = scalar_sequence({1, 1}, {1, 1}, {1, 1}, {0, 0});
  const double printed = recurrent<Retention>(twice).state(0, 0);
  const double correct = recurrent<Rule>(twice).state(0, 0);
  const Sequence<double> x = drawn_sequence(7, 4, 3);
  Sequence<double> literal = x;
  literal.v = x.beta.asDiagonal() * x.v;
  return Computation()
      .equal("alpha = beta = k = v = 1 twice: correct S_2", correct, 1.0)
      .equal("printed S_2", printed, 2.0)
      .contrast("S_2", printed, correct)
      .contrast_all("states of 7 random tokens", recurrent<Retention>(literal).state,
                    recurrent<Rule>(x).state)
      .identity("gdn_no_delta_term")
      .erratum();
}

/// GDN-45, ACT-2: beta must lie in (0, 1). `sigma` is the function that L29 applies to b.
template <class Sigma>
[[nodiscard]] Finding finding_of_the_write_strength(const Sigma& sigma) {
  double least = 1.0;
  for (double b = -8.0; b <= 8.0; b += 0x1p-10) least = std::min(least, silu(b));
  return Computation()
      .rounds_to("silu(2), sigma of L25", silu(2.0), 1.7616, 4)
      .rounds_to("least silu on [-8, 8]", least, -0.2785, 4)
      .rounds_to("sigma(2) of L29", sigma(2.0), 0.8808, 4)
      .relation("sigma(2) lies in (0, 1) and silu(2) does not", 0.0 < sigma(2.0) && sigma(2.0) < 1.0)
      .contrast("beta at b = 2", silu(2.0), sigma(2.0))
      .identity("gdn_layer_silu_write_strength")
      .resolved();
}

/// COST-6: "80B-A3B".
[[nodiscard]] inline Finding finding_of_the_model_size(const costs::Qwen3NextConfig& config) {
  const costs::Qwen3NextParameters p = costs::parameters(config);
  const auto billions = [](costs::Count count) { return static_cast<double>(count) / 1e9; };
  const costs::Count active = p.layers.active;
  return Computation()
      .count("parameters without a multi-token head", p.total(), 79674391296)
      .rounds_to("in billions", billions(p.total()), 80, 0)
      .rounds_to("active billions in the layers", billions(active), 3.25, 2)
      .rounds_to("with the LM head", billions(costs::sum({active, p.language_head})), 3.56, 2)
      .rounds_to("with both embeddings", billions(costs::sum({active, p.language_head, p.embedding})), 3.87,
                 2)
      .holds();
}

/// COST-12: the recurrent state of document 003's layer.
[[nodiscard]] inline Finding finding_of_the_state_memory(const costs::DendriticConfig& config) {
  const costs::Count elements = costs::state_elements(config);
  costs::DendriticConfig longer = config;
  longer.length *= 512;
  return Computation()
      .count("elements of [2, 128, 160, 512]", elements, 20971520)
      .rounds_to("MB in 16 bit", costs::megabytes(2 * elements), 41.94, 2)
      .rounds_to("MB in fp32", costs::megabytes(4 * elements), 83.89, 2)
      .contrast("MB in 16 bit", 26.2, costs::megabytes(2 * elements))
      .equal("bytes an element that 26.2144 MB would need", 26.2144e6 / static_cast<double>(elements), 1.25)
      .count("elements at 512 times the length", costs::state_elements(longer), elements)
      .erratum();
}

/// DEND-10, reading R1: the shared branches carry exactly half of the weight. `weights` maps the
/// probabilities of the chosen branches and the number of shared ones to [shared.., routed..].
template <class Weights>
[[nodiscard]] Finding finding_of_the_branch_weights(const Weights& weights) {
  const Matrix<double> uniform = weights(std::vector<double>{1.0 / 7.0, 1.0 / 7.0}, 1, false);
  const Matrix<double> literal = weights(std::vector<double>{1.0 / 7.0, 1.0 / 7.0}, 1, true);
  const Matrix<double> two = weights(std::vector<double>{0.4, 0.1}, 2, false);
  return Computation()
      .agree("R1, uniform logits: 0.5 / 0.25 / 0.25", uniform, row_of({0.5, 0.25, 0.25}))
      .rounds_to("R2 (the words alone), shared", literal(0, 0), 0.7778, 4)
      .rounds_to("R2, routed", literal(0, 1), 0.1111, 4)
      .agree("R1, two shared branches, p = 0.4 and 0.1: 1/4, 1/4, 0.4, 0.1", two,
             row_of({0.25, 0.25, 0.4, 0.1}))
      .contrast("shared weight under R2 and R1", literal(0, 0), uniform(0, 0))
      .remark("resolution R1")
      .resolved();
}

}  // namespace samestate
