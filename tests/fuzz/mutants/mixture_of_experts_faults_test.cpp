#include "tests/fuzz/mutants/faults.h"

namespace samestate {
namespace {

using namespace planted;

constexpr const char* kRouter = "cpu.expert_router.logits_first";
constexpr const char* kBalance = "cpu.load_balance.direct";
constexpr const char* kBlock = "cpu.qwen3_next_moe.sorted";

void flip(std::span<float> x, std::int64_t experts) {
  const std::int64_t each = std::ssize(x) / experts;
  const std::vector<float> old(x.begin(), x.end());
  for (std::int64_t i = 0; i < std::ssize(x); ++i)
    x[static_cast<std::size_t>(i)] =
        old[static_cast<std::size_t>((experts - 1 - i / each) * each + i % each)];
}

/// Ties to the higher expert: the experts are numbered backwards for the right kernel. Of the tensors in
/// `by_expert` the first extent is the expert, of those in `by_column` and of the outputs the last.
template <class Names>
Outcome ties_to_the_higher(const OperatorKernel& right, Damaged& c, const Contract& contract,
                           const Names& by_expert, const Names& by_column, const Names& outputs) {
  const std::int64_t N = c.call.parameter("N");
  for (const char* name : by_expert) flip(c.input(name), N);
  for (const char* name : by_column) c.groups(name, N, [N](std::span<float> x) { flip(x, N); });
  const Outcome outcome = right.run(c.call, contract);
  for (const char* name : outputs) {
    const std::span<float> x = c.output(name);
    for (std::size_t i = 0; i < x.size(); i += static_cast<std::size_t>(N))
      flip(x.subspan(i, static_cast<std::size_t>(N)), N);
  }
  return outcome;
}
using Names = std::vector<const char*>;

void one_expert_fewer(Damaged& c) { c.set("K", std::max<std::int64_t>(c.call.parameter("K") - 1, 1)); }
void one_expert_more(Damaged& c) { c.set("K", std::min(c.call.parameter("K") + 1, c.call.parameter("N"))); }

TEST(ExpertRouterFaults, Die) {
  expect_killed({
      misread("one expert fewer", kRouter, one_expert_fewer),
      misread("one expert more", kRouter, one_expert_more),
      misread("no bias", kRouter, [](Damaged& c) { c.set("bias", 0); }),
      {"ties to the higher expert", kRouter,
       [](const OperatorKernel& right, Damaged& c, const Contract& contract) {
         const bool bias = c.call.parameter("bias") == 1;
         return ties_to_the_higher(right, c, contract, bias ? Names{"router", "bias"} : Names{"router"},
                                   Names{}, Names{"logits", "probabilities", "weights"});
       }},
      miswritten("weights not renormalised", kRouter,
                 [](Damaged& c) {
                   const std::span<float> w = c.output("weights");
                   const std::span<float> p = c.output("probabilities");
                   for (std::size_t i = 0; i < w.size(); ++i) w[i] = w[i] == 0.0F ? 0.0F : p[i];
                 }),
      miswritten(
          "all experts keep their weight", kRouter,
          [](Damaged& c) { std::ranges::copy(c.output("probabilities"), c.output("weights").begin()); }),
  });
}

TEST(LoadBalanceFaults, Die) {
  expect_killed({
      misread("mask ignored", kBalance, [](Damaged& c) { c.fill("mask", 1.0F); }),
      misread("f of the other kind", kBalance,
              [](Damaged& c) { c.set("per_token", 1 - c.call.parameter("per_token")); }),
      misread("first choice alone", kBalance, [](Damaged& c) { c.set("K", 1); }),
      misread("no alpha", kBalance, [](Damaged& c) { c.fill("alpha", 1.0F); }),
      miswritten("no N", kBalance,
                 [](Damaged& c) {
                   for (float& x : c.output("loss")) x /= static_cast<float>(c.call.parameter("N"));
                 }),
      {"ties to the higher expert", kBalance,
       [](const OperatorKernel& right, Damaged& c, const Contract& contract) {
         return ties_to_the_higher(right, c, contract, Names{}, Names{"logits"}, Names{"load", "mean"});
       }},
      // E-33: P_i as the fraction of selections
      miswritten("mean of the selection", kBalance,
                 [](Damaged& c) { std::ranges::copy(c.output("load"), c.output("mean").begin()); }),
  });
}

void gate_and_up_exchanged(Damaged& c, const char* gate, const char* up) {
  std::ranges::swap_ranges(c.input(gate), c.input(up));
}
void next_experts_matrix(Damaged& c, const char* name) {
  const std::span<float> w = c.input(name);
  std::rotate(w.begin(), w.begin() + std::ssize(w) / c.call.parameter("N"), w.end());
}
/// Tokens beyond an expert's capacity are dropped in public code; here the last one is.
void last_token_dropped(Damaged& c) {
  const std::span<float> y = c.output("y");
  const std::int64_t D = c.call.output("y").shape.back();
  if (c.call.tokens > 1) std::fill(y.end() - D, y.end(), 0.0F);
}
/// y as if the weights were the probabilities over all experts (MOE-4, E-11).
void not_renormalised(Damaged& c) {
  const std::int64_t N = c.call.parameter("N");
  const std::span<float> logits = c.input("logits");
  const std::span<float> y = c.output("y");
  const std::int64_t D = c.call.output("y").shape.back();
  for (std::int64_t t = 0; t < std::ssize(logits) / N; ++t) {
    std::vector<float> e(logits.begin() + t * N, logits.begin() + (t + 1) * N);
    std::ranges::sort(e, std::greater<>());
    float chosen = 0.0F;
    float all = 0.0F;
    for (std::int64_t i = 0; i < N; ++i) {
      const float x = std::exp(e[static_cast<std::size_t>(i)] - e.front());
      all += x;
      if (i < c.call.parameter("K")) chosen += x;
    }
    for (std::int64_t j = 0; j < D; ++j) y[static_cast<std::size_t>(t * D + j)] *= chosen / all;
  }
}

/// Ties are the router's and the load balance's to see: here tokens with tied logits are zero tokens.
std::vector<OperatorFault> faults_of(const char* kernel) {
  return {
      misread("gate and up exchanged", kernel, [](Damaged& c) { gate_and_up_exchanged(c, "gate", "up"); }),
      misread("one expert fewer", kernel, one_expert_fewer),
      misread("down of the next expert", kernel, [](Damaged& c) { next_experts_matrix(c, "down"); }),
      misread("logits at half temperature", kernel,
              [](Damaged& c) { c.each("logits", [](float x) { return 2.0F * x; }); }),
      miswritten("weights not renormalised", kernel, not_renormalised),
      miswritten("last token dropped", kernel, last_token_dropped),
  };
}

TEST(MixtureOfExpertsFaults, OfTheSortedKernelDie) {
  expect_killed(faults_of("cpu.mixture_of_experts.sorted"));
}
TEST(MixtureOfExpertsFaults, OfTheKernelByTokenDie) {
  expect_killed(faults_of("cpu.mixture_of_experts.per_token"));
}

TEST(Qwen3NextMoeFaults, Die) {
  expect_killed({
      misread("gate and up exchanged", kBlock, [](Damaged& c) { gate_and_up_exchanged(c, "gate", "up"); }),
      misread("shared gate and up exchanged", kBlock,
              [](Damaged& c) { gate_and_up_exchanged(c, "shared_gate_proj", "shared_up"); }),
      misread("one expert fewer", kBlock, one_expert_fewer),
      misread("router rows off by one", kBlock, [](Damaged& c) { next_experts_matrix(c, "router"); }),
      misread("no shared expert", kBlock, [](Damaged& c) { c.fill("shared_down", 0.0F); }),
      // sigma(0) 2 = 1
      misread("shared expert without its gate", kBlock,
              [](Damaged& c) {
                c.fill("shared_gate", 0.0F);
                c.each("shared_down", [](float w) { return 2.0F * w; });
              }),
      misread("down of the next expert", kBlock, [](Damaged& c) { next_experts_matrix(c, "down"); }),
      miswritten("last token dropped", kBlock, last_token_dropped),
  });
}

}  // namespace
}  // namespace samestate
