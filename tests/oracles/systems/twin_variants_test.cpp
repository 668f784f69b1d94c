/// Kernels that have few of their operator's rounding points.
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "oracles/numbers.h"
#include "oracles/systems/operator_twin.h"
#include "oracles/systems/point_groups.h"
#include "oracles/systems/scalars.h"
#include "tests/oracles/systems/drawn_call.h"

namespace samestate {
namespace {

/// "a b; c": groups and their points by name.
std::string words(const std::vector<SkippedPoints>& groups) {
  std::string out;
  for (const SkippedPoints& group : groups) {
    for (const Point& point : group.points)
      out += point.name() + (&point == &group.points.back() ? "; " : " ");
  }
  return out;
}

// The sequence of a search decides which of several twins is found first: as it was when points were lines of the source.
TEST(OperatorTwin, LeavesOutGroupsInTheirOrder) {
  const DrawnSubject moe("qwen3_next_moe", "sorted", 6, {}, "bf16", 5);
  SkippedPoints met;
  (void)twin_values(moe.subject(), {}, &met);
  EXPECT_EQ(
      words(groups_of(met)),
      "mixture_of_experts.logits mixture_of_experts.weights experts.gate experts.up experts.hidden "
      "experts.down qwen3_next_moe.shared_hidden qwen3_next_moe.shared_down qwen3_next_moe.shared_gate; "
      "experts.gate experts.up; experts.hidden experts.down; "
      "qwen3_next_moe.shared_hidden qwen3_next_moe.shared_down; "
      "mixture_of_experts.logits mixture_of_experts.weights; "
      "experts.gate experts.up experts.hidden experts.down; "
      "qwen3_next_moe.shared_hidden qwen3_next_moe.shared_down qwen3_next_moe.shared_gate; "
      "mixture_of_experts.logits; mixture_of_experts.weights; experts.gate; experts.up; experts.hidden; "
      "experts.down; qwen3_next_moe.shared_hidden; qwen3_next_moe.shared_down; "
      "qwen3_next_moe.shared_gate; ");
  met.sort();
  EXPECT_EQ(words({met}),
            "qwen3_next_moe.shared_down qwen3_next_moe.shared_hidden qwen3_next_moe.shared_gate experts.down "
            "experts.hidden experts.gate experts.up mixture_of_experts.weights mixture_of_experts.logits; ");
}

// A layer in one kernel keeps all in fp32 but what it hands from one product to the next.
TEST(OperatorTwin, AKernelMayStoreOneOrTwoPointsAlone) {
  struct Row {
    const char* name;
    const char* form;
    Index tokens;
    std::map<std::string, Index> sizes;
  };
  const Row rows[] = {
      {"qwen3_next_moe", "sorted", 3, {{"D", 1}, {"N", 8}, {"K", 8}, {"F", 1}, {"Fs", 1}}},
      {"gated_attention", "online", 2, {{"D", 2}, {"H", 6}, {"pairs", 8}}},
      {"latent_attention", "absorbed", 5, {{"D", 1}, {"dn", 1}, {"dv", 88}, {"dc", 1}, {"q_lora", 3}}}};
  int failed = 0, kernels = 0;
  for (const Row& row : rows) {
    for (std::uint64_t seed = 1; seed <= 8; ++seed) {
      const DrawnSubject drawn(row.name, row.form, row.tokens, row.sizes, "bf16", seed);
      SkippedPoints met;
      (void)twin_values(drawn.subject(), {}, &met);
      ASSERT_GT(met.points.size(), 7U) << row.name;
      for (std::size_t i = 0; i < met.points.size(); ++i) {
        for (const std::size_t k : {i, (i + 3) % met.points.size()}) {
          TwinVariant variant;
          for (std::size_t other = 0; other < met.points.size(); ++other) {
            if (other != i && other != k) variant.skipped.add(met.points[other]);
          }
          variant.skipped.sort();
          const TwinJudgement judged =
              judge_operator_twin(drawn.subject(), drawn_kernel(drawn, variant), 7, kGatePolicy);
          failed += judged.judgement.verdict == Verdict::fail;
          ++kernels;
        }
      }
    }
  }
  // A few: where a tie of so small a case turned early, another twin is nearer. Without beginning from none 50 of 416 fail.
  EXPECT_LE(failed, kernels / 50);
  EXPECT_GT(kernels, 400);
}

}  // namespace
}  // namespace samestate
