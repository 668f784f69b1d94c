#include "fuzz/plan/token_factors.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "fuzz/plan/plan.h"
#include "harness/run/kernel_table.h"
#include "optimized/operator_kernel.h"

namespace samestate {
namespace {

Case of(Index T, Index chunk) {
  Case c;
  c.T = T;
  c.chunk = chunk;
  return c;
}

TEST(TokensBeyondTile, AreThoseThatReachTheSecondTileOfAChunk) {
  const Factor f = tokens_beyond_tile();
  EXPECT_EQ(f.level(of(300, 64)), -1);
  EXPECT_EQ(f.level(of(64, 256)), -1) << "a chunk of which only the first tile is filled";
  EXPECT_EQ(f.level(of(65, 256)), 0);
  EXPECT_EQ(f.level(of(256, 256)), 0);
  EXPECT_EQ(f.level(of(257, 256)), 1);
  Case packed = of(300, 128);
  packed.lengths = {64, 60, 64, 64, 48};
  EXPECT_EQ(f.level(packed), -1) << "no sequence has them";
  packed.lengths = {200, 100};
  EXPECT_EQ(f.level(packed), 1);
}

TEST(TokensBeyondTile, PutsWhatItCalls) {
  const Factor f = tokens_beyond_tile();
  std::uint64_t state = 5;
  const Dice dice{[&](std::int64_t n) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    return static_cast<std::int64_t>((state >> 33) % static_cast<std::uint64_t>(n));
  }};
  for (int level : {0, 1}) {
    for (int i = 0; i < 200; ++i) {
      Case c = of(7, 16);
      f.put(c, level, dice);
      ASSERT_EQ(f.level(c), level) << c.T << " " << c.chunk;
    }
    Case c = of(7, 16);
    f.put_least(c, level);
    EXPECT_EQ(f.level(c), level);
  }
}

TEST(TokensByChunk, EachLevelIsThatOfWhatItPuts) {
  const Factor f = tokens_by_chunk();
  const Dice most{[](std::int64_t n) { return n - 1; }};
  for (int level = 0; level < std::ssize(f.levels); ++level) {
    Case c = of(1, 16);
    f.put(c, level, most);
    EXPECT_EQ(f.level(c), level) << f.levels[static_cast<std::size_t>(level)];
  }
}

// With several chunks of more than a tile: more than one sequence, each law, each contract, packed ones.
TEST(TokensBeyondTile, ThePlanHasThemWithEveryOtherChoice) {
  const KernelTable table(kernels(), operator_kernels());
  for (const char* name : {"cpu.gated_delta_rule.chunked", "cpu.state_space_duality.chunked"}) {
    PlanOptions options;
    options.kernel = name;
    const std::vector<Case> plan = plan_cases(table, options);
    const Factor f = tokens_beyond_tile();
    const auto has = [&](auto&& holds) {
      return std::ranges::any_of(plan, [&](const Case& c) { return f.level(c) == 1 && holds(c); });
    };
    const KernelRow& kernel = table.row_named(name);
    EXPECT_TRUE(has([](const Case& c) { return c.B > 1; })) << name;
    for (const std::string& contract : kernel.contracts)
      EXPECT_TRUE(has([&](const Case& c) { return c.contract == contract; })) << name << " " << contract;
    for (const Law* law : kernel.system->laws)
      EXPECT_TRUE(has([&](const Case& c) { return c.law == law->name; })) << name << " " << law->name;
    for (const Index chunk : {96, 160, 192, 256}) {
      EXPECT_TRUE(has([&](const Case& c) { return c.chunk == chunk && c.T >= 2 * chunk; })) << name << chunk;
    }
  }
}

}  // namespace
}  // namespace samestate
