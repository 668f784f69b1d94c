#include "fuzz/plan/coarse_factors.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string_view>

#include "fuzz/plan/covering.h"
#include "fuzz/plan/plan.h"
#include "harness/run/kernel_table.h"
#include "optimized/operator_kernel.h"
#include "tests/kernel_table.h"

namespace samestate {
namespace {

const Factor& named(const std::vector<Factor>& factors, std::string_view name) {
  return *std::ranges::find(factors, name, &Factor::name);
}

TEST(CoarseFactors, HaveALevelForTheStartAndOneForTheRest) {
  const KernelRow& kernel = table().row_named("cpu.gated_delta_rule.chunked");
  const std::vector<Factor> factors = coarse_factors_of(kernel);
  const Case start = start_of(kernel);
  std::uint64_t state = 9;
  const Dice dice{[&](std::int64_t n) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    return static_cast<std::int64_t>((state >> 33) % static_cast<std::uint64_t>(n));
  }};
  for (const Factor& f : factors) {
    if (f.name == "form" || f.name == "sequences" || f.name == "prefill" || f.name == "chunk>64") continue;
    ASSERT_EQ(f.levels.size(), 2U) << f.name;
    EXPECT_EQ(f.level(start), 0) << f.name;
    for (const int level : {0, 1}) {
      for (int i = 0; i < 20; ++i) {
        Case c = start;
        f.put(c, level, dice);
        EXPECT_EQ(f.level(c), level) << f.name;
      }
      if (!f.put_least) continue;
      Case c = start;
      f.put_least(c, level);
      EXPECT_EQ(f.level(c), level) << f.name;
    }
  }
  Case c = start;
  c.dk = 64, c.T = 65, c.Hk = start.Hk + 1;
  EXPECT_EQ(named(factors, "dk").level(c), 0);
  EXPECT_EQ(named(factors, "T").level(c), 1);
  EXPECT_EQ(named(factors, "Hk").level(c), 1);
  named(factors, "dk").put(c, 1, dice);
  EXPECT_GE(c.dk, 128) << "as in models";
  for (const std::string_view none : {"regime", "law", "threads"})
    EXPECT_EQ(std::ranges::find(factors, none, &Factor::name), factors.end()) << none;
}

// Each a combination of three that no case of the plan had before, and that a bug was planted in.
TEST(CoarseFactors, ThePlanHasTheirTriples) {
  PlanOptions options;
  options.kernel = "cpu.gated_delta_rule.chunked";
  const std::vector<Case> plan = plan_cases(table(), options);
  const auto has = [&](auto&& holds) { return std::ranges::any_of(plan, holds); };
  EXPECT_TRUE(has([](const Case& c) { return c.B > 1 && c.T > 64 && c.dk >= 128; }));
  EXPECT_TRUE(has([](const Case& c) { return c.B > 1 && c.T > 64 && c.dv >= 128; }));
  EXPECT_TRUE(has([](const Case& c) { return c.Hk > 1 && c.T > 256 && c.dk >= 128; }));
  EXPECT_TRUE(has([](const Case& c) { return c.lengths.size() > 8 && c.T > 64 && c.Hv > c.Hk; }));
  EXPECT_TRUE(has([](const Case& c) { return c.lengths.size() > 8 && c.T > 64 && c.l2norm; }));
  EXPECT_TRUE(
      has([](const Case& c) { return c.lengths.size() > 8 && c.T > 64 && c.final_state == "in_place"; }));
  EXPECT_TRUE(has([](const Case& c) { return c.lengths.size() > 8 && c.lead + c.slack > 0 && c.T > 64; }));
  EXPECT_TRUE(has([](const Case& c) { return c.Hk > 1 && c.T > 64 && c.final_state == "none"; }));
}

// Another covering of the same triples would add next to nothing to the plan, but some dozens to a plan
// without them.
TEST(CoarseFactors, ThePlanLeavesNoneThatItCanAfford) {
  for (const char* name :
       {"cpu.gated_delta_rule.chunked", "cpu.short_convolution.scatter", "cpu.softmax_attention.online"}) {
    PlanOptions options;
    options.kernel = name;
    const std::vector<Case> plan = plan_cases(table(), options);
    const KernelRow& kernel = table().row_named(name);
    EXPECT_LE(cover(kernel, coarse_factors_of(kernel), plan, {.strength = 3}).cases.size(), 3U) << name;
  }
}

TEST(CoarseFactors, OverRanksTheyAreServedToo) {
  PlanOptions options;
  options.kernel = "cpu.gated_delta_rule.sequence_parallel";
  const std::vector<Case> plan = plan_cases(table(), options);
  const auto has = [&](auto&& holds) { return std::ranges::any_of(plan, holds); };
  EXPECT_TRUE(has([](const Case& c) { return c.T > 256 && c.Hv > c.Hk; }));
  EXPECT_TRUE(has([](const Case& c) { return c.T > 256 && !c.lengths.empty(); }));
  EXPECT_TRUE(has([](const Case& c) { return c.dk >= 128 && !c.lengths.empty() && c.l2norm; }));
}

}  // namespace
}  // namespace samestate
