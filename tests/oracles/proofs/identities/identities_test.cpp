#include <gtest/gtest.h>

#include <set>
#include <sstream>
#include <string>

#include "oracles/proofs/identities/identity.h"
#include "reference/error.h"

namespace samestate {
namespace {

TEST(Identities, EveryOneIsAsExpectedInBothPrecisions) {
  for (const Identity& identity : identities()) {
    const IdentityResult result = evaluate(identity, 2);
    EXPECT_TRUE(result.passed) << identity.id << " " << identity.name << ": " << result.in_float64
                               << " in float64, " << result.in_50_digits << " in 50 digits";
  }
}

TEST(Identities, NamesAreUniqueAndEveryIdOfTheLedgerIsThere) {
  std::set<std::string_view> names;
  std::set<std::string> ids;
  std::int64_t controls = 0;
  for (const Identity& identity : identities()) {
    EXPECT_TRUE(names.insert(identity.name).second) << identity.name;
    EXPECT_FALSE(identity.statement.empty()) << identity.name;
    std::istringstream of_ledger{std::string(identity.id)};
    for (std::string id; of_ledger >> id;) ids.insert(id);
    controls += identity.expectation == Expectation::differs ? 1 : 0;
  }
  const auto two_digits = [](int n) { return (n < 10 ? "0" : "") + std::to_string(n); };
  for (int n = 1; n <= 33; ++n) EXPECT_TRUE(ids.contains("EQ-" + two_digits(n))) << n;
  for (int n = 1; n <= 26; ++n) EXPECT_TRUE(ids.contains("P-" + two_digits(n))) << n;
  EXPECT_GE(controls, 12);
}

double small(std::uint64_t) { return 1e-15; }
double tiny(std::uint64_t) { return 1e-49; }
double visible(std::uint64_t) { return 0.1; }
double none(std::uint64_t) { return 0.0; }
double nan(std::uint64_t) { return std::numeric_limits<double>::quiet_NaN(); }

bool passes(Expectation expectation, Residual::Function in_float64, Residual::Function in_50_digits) {
  return evaluate({"EQ-00", "made_up", "none", "a against b", expectation, {in_float64, in_50_digits}})
      .passed;
}

TEST(Identities, WhatHoldsInFloat64AloneIsNoLaw) {
  EXPECT_TRUE(passes(Expectation::equal, small, tiny));
  EXPECT_FALSE(passes(Expectation::equal, small, small));
  EXPECT_FALSE(passes(Expectation::equal, visible, tiny));
  EXPECT_FALSE(passes(Expectation::holds, small, small));
  EXPECT_FALSE(passes(Expectation::exact, small, none));
  EXPECT_FALSE(passes(Expectation::exact, none, tiny));
  EXPECT_TRUE(passes(Expectation::exact, none, none));
}

TEST(Identities, NegativeControlMustShowInBoth) {
  EXPECT_TRUE(passes(Expectation::differs, visible, visible));
  EXPECT_FALSE(passes(Expectation::differs, visible, none));
  EXPECT_FALSE(passes(Expectation::differs, small, visible));
}

TEST(Identities, NaNIsNeverAsExpected) {
  for (Expectation expectation :
       {Expectation::equal, Expectation::exact, Expectation::holds, Expectation::differs}) {
    EXPECT_FALSE(passes(expectation, nan, none));
    EXPECT_FALSE(passes(expectation, none, nan));
  }
}

TEST(Identities, UnknownNamesAndSharedIdsAreErrors) {
  EXPECT_THROW((void)identity_named("no such"), Error);
  EXPECT_EQ(identity_named(identities().front().name).name, identities().front().name);
}

}  // namespace
}  // namespace samestate
