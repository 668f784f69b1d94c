#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "fuzz/mutants/backward/faults_of_sums.h"
#include "fuzz/mutants/operators/changed_call.h"
#include "fuzz/mutants/operators/sixteen_bit.h"

/// Faults of the gradients of a router and of experts: terms that are lost, gradients of the wrong expert, and experts of
/// which tokens are forgotten.
namespace samestate::mutants {
namespace {

using Call = ChangedCall;
using Numbers = std::vector<double>;

std::size_t of(std::int64_t i) { return static_cast<std::size_t>(i); }

/// The sum over i < n of x[i * dx] y[i * dy].
template <class X, class Y>
double inner(std::int64_t n, const X* x, std::int64_t dx, const Y* y, std::int64_t dy) {
  double sum = 0.0;
  for (std::int64_t i = 0; i < n; ++i) sum += static_cast<double>(x[i * dx]) * static_cast<double>(y[i * dy]);
  return sum;
}

std::int64_t chosen(Call& c, std::int64_t token, std::int64_t rank) {
  return std::llround(c.input("experts")[of(token * c.at("K") + rank)]);
}

/// softmax of N logits in float64.
Numbers softmax_of_logits(const Numbers& logits) {
  Numbers p = logits;
  const double most = *std::ranges::max_element(p);
  double sum = 0.0;
  for (double& x : p) sum += x = std::exp(x - most);
  for (double& x : p) x /= sum;
  return p;
}

/// The weights of a token's K experts, from all its logits.
Numbers weights_of(Call& c, std::int64_t token, const Numbers& logits) {
  Numbers own;
  for (std::int64_t r = 0; r < c.at("K"); ++r) own.push_back(logits[of(chosen(c, token, r))]);
  return softmax_of_logits(own);
}

/// A fault of a router's gradient of the logits, which is made by a change of the cotangent of the logits: `change` gets
/// the token, its logits, and its rows of d.logits and d.weights.
struct RouterRow {
  Call& c;
  std::int64_t token;
  const Numbers& logits;
  std::span<float> d_logits, d_weights;
};
CallFault rerouted_gradient(std::function<void(RouterRow&)> change) {
  return misread([change = std::move(change)](Call& c) {
    const std::int64_t N = c.at("N"), D = c.at("D"), tokens = c.call.batch * c.call.tokens;
    const std::span<float> x = c.input("x"), w = c.input("router"), dl = c.input("d.logits"),
                           dw = c.input("d.weights");
    for (std::int64_t t = 0; t < tokens; ++t) {
      Numbers logits;
      for (std::int64_t e = 0; e < N; ++e) {
        const double bias = c.at("bias") == 1 ? static_cast<double>(c.input("bias")[of(e)]) : 0.0;
        logits.push_back(inner(D, &x[of(t * D)], 1, &w[of(e * D)], 1) + bias);
      }
      RouterRow row{c, t, logits, dl.subspan(of(t * N), of(N)), dw.subspan(of(t * N), of(N))};
      change(row);
    }
  });
}

/// Each chosen expert's part of the gradient of the logits, w (dw - <w, dw>).
Numbers parts_of(RouterRow& row) {
  Numbers w = weights_of(row.c, row.token, row.logits), part = w;
  double along = 0.0;
  const auto cotangent = [&](std::size_t r) {
    return static_cast<double>(row.d_weights[of(chosen(row.c, row.token, static_cast<std::int64_t>(r)))]);
  };
  for (std::size_t r = 0; r < w.size(); ++r) along += w[r] * cotangent(r);
  for (std::size_t r = 0; r < w.size(); ++r) part[r] *= cotangent(r) - along;
  return part;
}
void add(float& to, double x) { to = static_cast<float>(static_cast<double>(to) + x); }

/// w dw in place of w (dw - <w, dw>).
void projection_of_weights_lost(RouterRow& row) {
  const Numbers w = weights_of(row.c, row.token, row.logits), part = parts_of(row);
  for (std::size_t r = 0; r < w.size(); ++r) {
    const std::size_t e = of(chosen(row.c, row.token, static_cast<std::int64_t>(r)));
    add(row.d_logits[e], w[r] * static_cast<double>(row.d_weights[e]) - part[r]);
  }
}
/// The weights are those of a softmax over all experts, whose cotangent goes to all logits.
void renormalisation_lost(RouterRow& row) {
  const Numbers p = softmax_of_logits(row.logits), part = parts_of(row);
  Numbers dw(p.size(), 0.0);
  double along = 0.0;
  for (std::size_t r = 0; r < part.size(); ++r) {
    const std::size_t e = of(chosen(row.c, row.token, static_cast<std::int64_t>(r)));
    dw[e] = static_cast<double>(row.d_weights[e]);
    along += p[e] * dw[e];
    add(row.d_logits[e], -part[r]);
  }
  for (std::size_t e = 0; e < p.size(); ++e) add(row.d_logits[e], p[e] * (dw[e] - along));
}
/// The part of a chosen expert goes to the next one's logit.
void part_of_the_neighbour(RouterRow& row) {
  const Numbers part = parts_of(row);
  for (std::size_t r = 0; r < part.size(); ++r) {
    const std::size_t e = of(chosen(row.c, row.token, static_cast<std::int64_t>(r)));
    add(row.d_logits[e], -part[r]);
    add(row.d_logits[(e + 1) % row.d_logits.size()], part[r]);
  }
}
/// Experts that are not chosen have a gradient too, as if they had their share of the sum.
void not_chosen_have_a_gradient(RouterRow& row) {
  const Numbers p = softmax_of_logits(row.logits), w = weights_of(row.c, row.token, row.logits);
  std::vector<bool> taken(p.size(), false);
  double sum = 0.0, along = 0.0;
  for (std::size_t r = 0; r < w.size(); ++r) {
    const std::size_t e = of(chosen(row.c, row.token, static_cast<std::int64_t>(r)));
    taken[e] = true;
    sum += p[e];
    along += w[r] * static_cast<double>(row.d_weights[e]);
  }
  for (std::size_t e = 0; e < p.size(); ++e) {
    if (!taken[e] && sum > 0.0)
      add(row.d_logits[e], p[e] / sum * (static_cast<double>(row.d_weights[e]) - along));
  }
}
void next_expert_of_cotangent(Call& c) {
  each_row(c.input("d.weights"), c.at("N"), [](std::span<float> row) { rotate(row, 1); });
}
void no_router_bias(Call& c) {
  if (c.at("bias") == 1) c.fill("bias", 0.0F);
}
void next_experts_gradient(Call& c, std::string_view output) {
  rotate(c.output(output), std::ssize(c.output(output)) / c.at("N"));
}

/// A way to compute the gradients of the experts; the default is right.
struct ExpertRule {
  bool slope_is_sigma = false;      ///< sigma(g) in place of the derivative of silu
  bool slope_is_silu = false;       ///< silu(g) / g in the gate's cotangent, whose second term is forgotten
  int powers_of_weight = 1;         ///< of the routing weight in the cotangent of an expert's output
  bool without_last = false;        ///< the last token of each expert gives nothing to its matrices
  bool last_alone = false;          ///< each token overwrites the gradients of its expert's matrices
  bool projection_lost = false;     ///< d.logits = w dw
  bool first_expert_alone = false;  ///< d.x is that of a token's first expert
};

/// The gradients of the experts in float64.
struct ExpertNumbers {
  Numbers x, gate, up, down, logits;

  ExpertNumbers(Call& c, const ExpertRule& rule)
      : x(c.output("d.x").size()),
        gate(c.output("d.gate").size()),
        up(gate.size()),
        down(gate.size()),
        logits(c.output("d.logits").size()) {
    const std::int64_t N = c.at("N"), K = c.at("K"), tokens = c.call.batch * c.call.tokens;
    std::vector<std::int64_t> last(of(N), -1);
    for (std::int64_t t = 0; t < tokens; ++t) {
      for (std::int64_t r = 0; r < K; ++r) last[of(chosen(c, t, r))] = t;
    }
    for (std::int64_t t = 0; t < tokens; ++t) {
      Numbers all;
      for (std::int64_t e = 0; e < N; ++e)
        all.push_back(static_cast<double>(c.input("logits")[of(t * N + e)]));
      const Numbers w = weights_of(c, t, all);
      Numbers dw;
      double along = 0.0;
      for (std::int64_t r = 0; r < K; ++r) {
        const std::int64_t e = chosen(c, t, r);
        const bool is_last = last[of(e)] == t;
        const bool counts = !(rule.without_last && is_last) && !(rule.last_alone && !is_last);
        dw.push_back(assignment(c, rule, t, e, w[of(r)], counts, !rule.first_expert_alone || r == 0));
        along += w[of(r)] * dw.back();
      }
      for (std::int64_t r = 0; r < K; ++r)
        logits[of(t * N + chosen(c, t, r))] = w[of(r)] * (dw[of(r)] - (rule.projection_lost ? 0.0 : along));
    }
  }

 private:
  /// Adds what one token gives to one expert; returns the gradient of its weight.
  double assignment(Call& c, const ExpertRule& rule, std::int64_t t, std::int64_t e, double weight,
                    bool counts, bool returns) {
    const std::int64_t D = c.at("D"), F = c.at("F"), first = e * F * D;
    const float *const in = &c.input("x")[of(t * D)], *const dy = &c.input("d.y")[of(t * D)];
    const float *const g = &c.input("gate")[of(first)], *const u = &c.input("up")[of(first)],
                       *const d = &c.input("down")[of(first)];
    const double factor = std::pow(weight, rule.powers_of_weight);
    double d_weight = 0.0;
    for (std::int64_t f = 0; f < F; ++f) {
      const double a = inner(D, g + f * D, 1, in, 1), b = inner(D, u + f * D, 1, in, 1);
      const double sigma = 1.0 / (1.0 + std::exp(-a)), silu = a * sigma;
      const double back = inner(D, d + f, F, dy, 1), dh = factor * back;
      const double slope = rule.slope_is_sigma  ? sigma
                           : rule.slope_is_silu ? silu
                                                : sigma * (1.0 + a * (1.0 - sigma));
      const double da = dh * b * slope, db = dh * silu;
      d_weight += silu * b * back;
      for (std::int64_t j = 0; j < D; ++j) {
        const double xj = static_cast<double>(in[j]);
        if (counts) {
          gate[of(first + f * D + j)] += da * xj;
          up[of(first + f * D + j)] += db * xj;
          down[of(first + j * F + f)] += factor * static_cast<double>(dy[j]) * silu * b;
        }
        if (returns)
          x[of(t * D + j)] += da * static_cast<double>(g[f * D + j]) + db * static_cast<double>(u[f * D + j]);
      }
    }
    return d_weight;
  }
};

/// A kernel whose gradients differ from the right ones by what the rule changes.
CallFault by_rule(ExpertRule rule) {
  return [rule](const OperatorKernel& right, Call& c, const Contract& contract) {
    const Outcome outcome = right.run(c.call, contract);
    if (outcome.kind != Outcome::Kind::ran) return outcome;
    const ExpertNumbers wrong(c, rule), exact(c, {});
    const auto change = [&](std::string_view output, const Numbers& to, const Numbers& from) {
      const std::span<float> y = c.output(output);
      for (std::size_t i = 0; i < y.size(); ++i) {
        if (to[i] != from[i])
          y[i] = rounded(static_cast<float>(static_cast<double>(y[i]) + to[i] - from[i]), contract.output);
      }
    };
    change("d.x", wrong.x, exact.x);
    change("d.gate", wrong.gate, exact.gate);
    change("d.up", wrong.up, exact.up);
    change("d.down", wrong.down, exact.down);
    change("d.logits", wrong.logits, exact.logits);
    return outcome;
  };
}

/// The gradients of an expert without a token stay what was in memory.
Outcome idle_expert_unwritten(const OperatorKernel& right, Call& c, const Contract& contract) {
  std::vector<bool> used(of(c.at("N")), false);
  for (const float e : c.input("experts")) used[of(std::llround(e))] = true;
  Outputs before;
  for (const std::string_view name : {"d.gate", "d.up", "d.down"})
    before.emplace(name, std::vector<float>(c.output(name).begin(), c.output(name).end()));
  const Outcome outcome = right.run(c.call, contract);
  for (const auto& [name, values] : before) {
    const std::span<float> y = c.output(name);
    for (std::size_t i = 0; i < y.size(); ++i) {
      if (!used[i / (y.size() / used.size())]) y[i] = values[i];
    }
  }
  return outcome;
}

/// Each expert's gradient of down is written as [F, D].
void down_transposed(Call& c) {
  const std::int64_t D = c.at("D"), F = c.at("F");
  std::vector<float> turned(of(D * F));
  each_row(c.output("d.down"), D * F, [&](std::span<float> one) {
    for (std::int64_t j = 0; j < D; ++j) {
      for (std::int64_t f = 0; f < F; ++f) turned[of(f * D + j)] = one[of(j * F + f)];
    }
    std::ranges::copy(turned, one.begin());
  });
}
void gradients_of_gate_and_up_exchanged(Call& c) {
  std::ranges::swap_ranges(c.output("d.gate"), c.output("d.up"));
}
void neighbours_logit(Call& c) {
  each_row(c.output("d.logits"), c.at("N"), [](std::span<float> row) { rotate(row, 1); });
}

}  // namespace

std::vector<Mutant> expert_gradient_mutants() {
  std::vector<Mutant> out;
  add_faults(
      out, "cpu.expert_router.backward.logits_first",
      with_sums(
          {{"F", "renormalisation_lost", "the weights' gradient is that of probabilities over all experts",
            rerouted_gradient(renormalisation_lost)},
           {"F", "projection_of_weights_lost", "w dw in place of w (dw - <w, dw>)",
            rerouted_gradient(projection_of_weights_lost)},
           {"F", "part_of_the_neighbour", "a chosen expert's gradient goes to the next logit",
            rerouted_gradient(part_of_the_neighbour)},
           {"F", "not_chosen_have_a_gradient", "weights of 0 have a gradient too",
            rerouted_gradient(not_chosen_have_a_gradient)},
           {"F", "cotangent_of_the_next_expert", "d.w is that of the next expert",
            misread(next_expert_of_cotangent)},
           {"F", "weights_counted_twice", "d.w counts twice",
            misread(mapped("d.weights", [](float x) { return 2.0F * x; }))},
           {"F", "weights_without_gradient", "d.w counts as zero", misread(filled("d.weights", 0.0F))},
           {"F", "probabilities_without_gradient", "the auxiliary loss is cut off: d.p counts as zero",
            misread(filled("d.probabilities", 0.0F))},
           {"F", "logits_without_gradient", "d.logits counts as zero", misread(filled("d.logits", 0.0F))},
           {"F", "gradient_of_the_next_expert", "an expert's row of d.router is the next one's",
            miswritten([](Call& c) { next_experts_gradient(c, "d.router"); })},
           {"F", "no_bias_back", "the logits are made again without the bias", misread(no_router_bias)}}));
  add_faults(
      out, "cpu.mixture_of_experts.backward.sorted",
      with_sums({{"F", "idle_expert_unwritten", "the gradients of an expert without a token are not written",
                  idle_expert_unwritten},
                 {"F", "slope_is_sigma", "sigma(g) in place of the derivative of silu",
                  by_rule({.slope_is_sigma = true})},
                 {"F", "slope_is_silu", "silu(g) in place of the derivative of silu",
                  by_rule({.slope_is_silu = true})},
                 {"F", "gate_and_up_exchanged", "up is activated and not the gate",
                  misread(exchanged("gate", "up"))},
                 {"F", "gradients_of_gate_and_up_exchanged", "d.gate is d.up and d.up is d.gate",
                  miswritten(gradients_of_gate_and_up_exchanged)},
                 {"F", "last_token_of_an_expert_lost", "the matrices' gradients lack an expert's last token",
                  by_rule({.without_last = true})},
                 {"F", "last_token_of_an_expert_alone", "each token overwrites its expert's gradients",
                  by_rule({.last_alone = true})},
                 {"F", "weight_lost", "the cotangent of an expert lacks the routing weight",
                  by_rule({.powers_of_weight = 0})},
                 {"F", "weight_counted_twice", "the cotangent of an expert has the routing weight twice",
                  by_rule({.powers_of_weight = 2})},
                 {"F", "weight_detached", "the logits have no gradient",
                  miswritten([](Call& c) { std::ranges::fill(c.output("d.logits"), 0.0F); })},
                 {"F", "projection_of_weights_lost", "d.logits = w dw", by_rule({.projection_lost = true})},
                 {"F", "logit_of_the_neighbour", "d.logits of an expert is the next one's",
                  miswritten(neighbours_logit)},
                 {"F", "first_expert_alone", "d.x is that of a token's first expert",
                  by_rule({.first_expert_alone = true})},
                 {"F", "down_transposed", "d.down of an expert is transposed", miswritten(down_transposed)},
                 {"F", "gradient_of_the_next_expert", "d.gate of an expert is that of the next",
                  miswritten([](Call& c) { next_experts_gradient(c, "d.gate"); })}}));
  return out;
}

}  // namespace samestate::mutants
