#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include "tests/harness/systems/other_kernels.h"

/// Experts that are chosen by probabilities made in fp32, as public routers choose them: logits that differ may tie there
/// (bounds_operators.md 13).
namespace samestate {
namespace {

enum class Choice {
  first_of_ties,
  last_of_ties,
  next_best_for_the_last,
  worst_for_the_last,
  not_renormalised
};

std::vector<Index> chosen(const std::vector<float>& p, Index K, Choice choice) {
  std::vector<Index> order(p.size());
  std::iota(order.begin(), order.end(), Index{0});
  if (choice == Choice::last_of_ties) std::reverse(order.begin(), order.end());
  std::stable_sort(order.begin(), order.end(), [&](Index i, Index j) {
    return p[static_cast<std::size_t>(i)] > p[static_cast<std::size_t>(j)];
  });
  const auto last = static_cast<std::size_t>(K - 1);
  if (last + 1 < p.size()) {
    if (choice == Choice::next_best_for_the_last) std::swap(order[last], order[last + 1]);
    if (choice == Choice::worst_for_the_last) std::swap(order[last], order.back());
  }
  order.resize(static_cast<std::size_t>(K));
  return order;
}

float product(const float* a, const float* b, Index n) {
  float sum = 0.0F;
  for (Index i = 0; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

Outcome mixture(const OperatorArguments& call, Choice choice) {
  const Index D = call.parameter("D"), N = call.parameter("N"), K = call.parameter("K"),
              F = call.parameter("F");
  for (Index row = 0; row < call.batch * call.tokens; ++row) {
    const float* x = call.input("x").data + row * D;
    const float* logits = call.input("logits").data + row * N;
    float* y = call.output("y").data + row * D;
    const float largest = *std::max_element(logits, logits + N);
    std::vector<float> p;
    for (Index i = 0; i < N; ++i) p.push_back(std::exp(logits[i] - largest));
    const float sum = std::accumulate(p.begin(), p.end(), 0.0F);
    for (float& e : p) e /= sum;
    const std::vector<Index> experts = chosen(p, K, choice);
    float weight = 0.0F;
    for (const Index i : experts) weight += p[static_cast<std::size_t>(i)];
    if (choice == Choice::not_renormalised) weight = 1.0F;
    std::fill(y, y + D, 0.0F);
    for (const Index i : experts) {
      std::vector<float> hidden;
      for (Index f = 0; f < F; ++f) {
        const float g = product(call.input("gate").data + (i * F + f) * D, x, D);
        hidden.push_back(g / (1.0F + std::exp(-g)) * product(call.input("up").data + (i * F + f) * D, x, D));
      }
      for (Index c = 0; c < D; ++c)
        y[c] += p[static_cast<std::size_t>(i)] / weight *
                product(call.input("down").data + (i * D + c) * F, hidden.data(), F);
    }
  }
  return {};
}

Judgement judged_choice(const std::string& line, Choice choice) {
  return judged_kernel(line, "sorted", [=](const OperatorArguments& call) { return mixture(call, choice); });
}

// Failed at any ratio, since one token's two probabilities round to one number.
const std::string kTie =
    "v1 mixture_of_experts form=sorted B=128 T=4 D=1 N=3 F=1 regime=tiny seed=0x18000088c";

TEST(RoundedChoices, EitherOfATieIsRight) {
  for (const Choice choice : {Choice::first_of_ties, Choice::last_of_ties}) {
    const Judgement j = judged_choice(kTie, choice);
    EXPECT_EQ(j.verdict, Verdict::pass) << static_cast<int>(choice) << ": " << j.ratio << " " << j.reason;
  }
}

TEST(RoundedChoices, WrongChoicesDie) {
  for (const std::string& line :
       {kTie, std::string("v1 mixture_of_experts form=sorted T=21"),
        std::string("v1 mixture_of_experts form=sorted T=9 N=16 K=4 D=6 F=5 regime=tiny"),
        std::string("v1 mixture_of_experts form=sorted T=9 N=16 K=4 D=6 F=5 contract=bf16")}) {
    for (const Choice fault :
         {Choice::next_best_for_the_last, Choice::worst_for_the_last, Choice::not_renormalised}) {
      const Judgement j = judged_choice(line, fault);
      EXPECT_EQ(j.verdict, Verdict::fail) << line << ": " << static_cast<int>(fault) << " " << j.reason;
    }
  }
}

TEST(RoundedChoices, DrawnCasesPass) {
  for (const char* regime : {"normal", "tiny", "large", "repeated", "zeros"}) {
    for (int seed = 1; seed <= 12; ++seed) {
      const std::string line = "v1 mixture_of_experts form=sorted T=40 D=" + std::to_string(1 + seed % 9) +
                               " N=" + std::to_string(2 + seed) + " F=3 regime=" + regime +
                               " seed=" + std::to_string(seed);
      for (const Choice choice : {Choice::first_of_ties, Choice::last_of_ties}) {
        const Judgement j = judged_choice(line, choice);
        EXPECT_NE(j.verdict, Verdict::fail) << line << ": " << j.ratio << " " << j.reason;
      }
    }
  }
}

}  // namespace
}  // namespace samestate
