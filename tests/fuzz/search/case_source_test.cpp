#include "fuzz/search/case_source.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "harness/cases/regimes.h"
#include "harness/cases/resolved.h"
#include "optimized/operator_kernel.h"
#include "tests/kernel_table.h"

namespace samestate {
namespace {

TEST(CaseSource, IsAFunctionOfSeedAndIndex) {
  const CaseSource a(table(), {}, 5);
  const CaseSource b(table(), {}, 5);
  const CaseSource other(table(), {}, 6);
  int differing = 0;
  for (const std::int64_t i : {0, 7, 3, 1000000}) {
    EXPECT_EQ(a.draw(i), b.draw(i));
    EXPECT_EQ(a.draw(i), a.draw(i));
    differing += a.draw(i) != other.draw(i);
  }
  EXPECT_EQ(differing, 4);
  EXPECT_NE(a.draw(0), a.draw(1));
}

TEST(CaseSource, EveryCaseIsItsOwnLineAndCanRun) {
  const CaseSource source(table(), {}, 1);
  for (std::int64_t i = 0; i < 2000; ++i) {
    const Case c = source.draw(i);
    ASSERT_NO_THROW((void)Resolved(c)) << format_case(c);
    ASSERT_EQ(parse_case(format_case(c)), c);
    ASSERT_NO_THROW((void)planned_record(c, table())) << format_case(c);
  }
}

// HARNESS 2: RapidCheck's ranges stop short and its integers stay small unless they are drawn at nominal
// size.
TEST(CaseSource, ReachesTheEndsOfItsRanges) {
  const CaseSource source(table(), {"gated_delta_rule", "cpu", ""}, 2);
  std::set<std::int64_t> widths, chunks;
  std::set<std::string> regimes;
  std::int64_t longest = 0;
  int high_seeds = 0;
  for (std::int64_t i = 0; i < 3000; ++i) {
    const Case c = source.draw(i);
    widths.insert(c.dk);
    chunks.insert(c.chunk);
    regimes.insert(c.regime);
    longest = std::max(longest, c.T);
    high_seeds += c.seed >> 63 != 0;
  }
  EXPECT_TRUE(widths.contains(1) && widths.contains(128));
  EXPECT_TRUE(chunks.contains(1) && chunks.contains(64));
  for (const Regime& regime : samestate::regimes())
    EXPECT_TRUE(regimes.contains(std::string(regime.name))) << regime.name;
  EXPECT_GT(longest, 280);
  EXPECT_GT(high_seeds, 1300);
  EXPECT_LT(high_seeds, 1700);
}

TEST(CaseSource, KeepsToItsFilter) {
  const CaseSource source(table(), {"", "", "cpu.retention.chunked"}, 3);
  for (std::int64_t i = 0; i < 200; ++i) {
    const Case c = source.draw(i);
    EXPECT_EQ(planned_record(c, table()).kernel, "cpu.retention.chunked") << format_case(c);
  }
}

TEST(CaseSource, BadFiltersAreErrors) {
  EXPECT_THROW(CaseSource(table(), {"nope", "", ""}, 1), Error);
  EXPECT_THROW(CaseSource(table(), {"", "tpu", ""}, 1), Error);
  EXPECT_THROW(CaseSource(table(), {"delta_rule", "", "cpu.retention.chunked"}, 1), Error);
}

TEST(CaseSource, AnotherTableHasAnotherFingerprint) {
  const CaseSource all(table(), {}, 1);
  const CaseSource same(table(), {}, 2);
  const CaseSource one(table(), {"retention", "", ""}, 1);
  EXPECT_EQ(all.fingerprint(), same.fingerprint());
  EXPECT_NE(all.fingerprint(), one.fingerprint());
}

}  // namespace
}  // namespace samestate
