#include "fuzz/plan/uses.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "fuzz/plan/draw.h"
#include "harness/cases/counter.h"
#include "optimized/operator_kernel.h"

namespace samestate {
namespace {

struct Drawn {
  KernelTable table{kernels(), operator_kernels()};
  const KernelRow& kernel = *std::find_if(table.all().begin(), table.all().end(), [](const KernelRow& row) {
    return row.name == "cpu.rms_norm.fused";
  });
  std::vector<Factor> factors = factors_of(kernel);
  Combinations pairs{factors, 2};
  std::vector<Case> cases;

  explicit Drawn(int count) {
    const Counter counter(7, "uses");
    std::int64_t draw = 0;
    const Dice dice{[&](std::int64_t n) { return counter.below({draw++, 0, 0, 0}, n); }};
    for (int i = 0; i < count; ++i) cases.push_back(draw_case(kernel, factors, dice, 1.0));
  }
};

TEST(Uses, NeedsAreWhatNoOtherCaseHas) {
  const Drawn drawn(30);
  Uses uses(drawn.factors, drawn.pairs, start_of(drawn.kernel));
  for (const Case& c : drawn.cases) uses.count(c, 1);
  std::size_t found = 0;
  for (std::size_t i = 0; i < drawn.cases.size(); ++i) {
    std::set<std::int64_t> others;
    for (std::size_t j = 0; j < drawn.cases.size(); ++j) {
      if (j == i) continue;
      const std::vector<std::int64_t> has = drawn.pairs.of(levels_of(drawn.factors, drawn.cases[j]));
      others.insert(has.begin(), has.end());
    }
    std::vector<std::int64_t> alone;
    for (const std::int64_t at : drawn.pairs.of(levels_of(drawn.factors, drawn.cases[i]))) {
      if (!others.contains(at)) alone.push_back(at);
    }
    EXPECT_EQ(uses.needs(drawn.cases[i]).combinations, alone) << i;
    found += alone.size();
  }
  EXPECT_GT(found, 0U);
}

TEST(Uses, ABoundaryIsNeededUntilASecondCaseHasIt) {
  const Drawn drawn(1);
  const auto width = static_cast<std::size_t>(std::find_if(drawn.factors.begin(), drawn.factors.end(),
                                                           [](const Factor& f) { return f.name == "D"; }) -
                                              drawn.factors.begin());
  ASSERT_LT(width, drawn.factors.size());
  Case c = drawn.cases.front();
  drawn.factors[width].put_value(c, 64);
  Uses uses(drawn.factors, drawn.pairs, start_of(drawn.kernel));
  uses.count(c, 1);
  const auto has_width = [&] {
    const Needs needs = uses.needs(c);
    return std::find(needs.values.begin(), needs.values.end(), width) != needs.values.end();
  };
  EXPECT_TRUE(has_width());
  uses.count(c, 1);
  EXPECT_FALSE(has_width());
  EXPECT_TRUE(uses.needs(c).combinations.empty());
  uses.count(c, -1);
  EXPECT_TRUE(has_width());
}

// A case that compares a kernel with itself, or has data in which little shows, is not a second witness.
TEST(Uses, ABoundaryNeedsAWitness) {
  const Drawn drawn(0);
  const auto width = std::ranges::find(drawn.factors, "D", &Factor::name);
  ASSERT_NE(width, drawn.factors.end());
  const Case plain = start_of(drawn.kernel);
  Case law = plain, data = plain;
  law.law = "batch_permutation";
  data.regime = "zeros";
  EXPECT_EQ(exposure(*width, plain, plain), Exposure::all);
  EXPECT_EQ(exposure(*width, law, plain), Exposure::little);
  EXPECT_EQ(exposure(*width, data, plain), Exposure::little);
  Case few = plain;
  few.T = 1;
  EXPECT_EQ(exposure(*width, few, plain), Exposure::most);
  Uses uses(drawn.factors, drawn.pairs, plain);
  const auto is_needed = [&](const Case& c) {
    const Needs needs = uses.needs(c);
    return std::ranges::count(needs.values, static_cast<std::size_t>(width - drawn.factors.begin())) > 0;
  };
  Case c = plain;
  width->put_value(c, 64);
  width->put_value(law, 64);
  width->put_value(data, 64);
  uses.count(law, 1);
  EXPECT_TRUE(is_needed(law)) << "none has it but this";
  uses.count(data, 1);
  EXPECT_FALSE(is_needed(law));
  uses.count(c, 1);
  EXPECT_TRUE(is_needed(c));
  EXPECT_FALSE(is_needed(data));
}

}  // namespace
}  // namespace samestate
