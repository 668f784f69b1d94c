// Tests what heads the explanation of a failure: a mutant that is known by name, unless a setting turns the
// fault on.
#include "cli/explained.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "oracles/reasons.h"
#include "tests/harness/planted.h"

namespace samestate::cli {
namespace {

Explanation explained(const KernelTable& table, const std::string& keys) {
  const Case c = parse_case("v1 gated_delta_rule chunk=8 B=2 T=27 Hk=2 Hv=4 dk=8 dv=8 " + keys +
                            " kernel=planted.gated_delta_rule.chunked");
  Trace trace;
  EXPECT_EQ(run_case(c, table, 1, &trace).judgement.verdict, Verdict::fail) << keys;
  return explain_failure(Resolved(c), trace, table);
}

bool is_mutant(const std::string& pattern) { return pattern.find(kOfMutant) != std::string::npos; }

// Without a state there is nothing to forget: the setting turns on what the mutant is, and the mutant is the cause.
TEST(ExplainFailure, AMutantHeadsTheListThoughASettingTurnsItOn) {
  const Explanation e = explained(
      faulty::planted_table(faulty::before([](Arguments& a) { a.initial_state = {}; })), "state=random");
  ASSERT_GE(e.patterns.size(), 2U);
  EXPECT_TRUE(is_mutant(e.patterns.front())) << testing::PrintToString(e.patterns);
  EXPECT_NE(std::ranges::find(e.patterns, "only with state=random: passes with state=none"), e.patterns.end())
      << testing::PrintToString(e.patterns);
}

// The mutant forgets the state wherever it lies; this kernel does so in one memory alone.
TEST(ExplainFailure, AMutantThatFailsWithoutTheSettingDoesNot) {
  const Explanation e = explained(faulty::planted_table(faulty::before([](Arguments& a) {
                                    if (a.final_state.data == a.initial_state.data) a.initial_state = {};
                                  })),
                                  "state=random final=in_place");
  ASSERT_GE(e.patterns.size(), 2U);
  EXPECT_EQ(e.patterns.front(), "only with final=in_place: passes with final=apart");
  EXPECT_TRUE(std::ranges::any_of(e.patterns, is_mutant)) << testing::PrintToString(e.patterns);
}

// A sentence that named one of two mutants with the same values would blame the wrong one half of the time.
TEST(KnownMistakes, TwoThatGiveTheSameValuesAreBothNamed) {
  const std::string a = "no scale (mutant a)", b = "half the scale (mutant b)", c = "no norm (mutant c)";
  EXPECT_EQ(known_mistakes({a, "only the last token"}), a);
  EXPECT_EQ(known_mistakes({a, b, "only the last token", c}), a + "; or " + b);
  EXPECT_EQ(known_mistakes({a, b, c}), a + "; or " + b + "; or 1 more that give the same values");
  EXPECT_EQ(known_mistakes({"only the last token", a}), "");
  EXPECT_EQ(known_mistakes({}), "");
}

TEST(ExplainFailure, SaysHowMuchWasTried) {
  const Explanation e = explained(faulty::planted_table(faulty::after([](const Arguments& a) {
                                    faulty::each(a.o, [](float& x, const auto&) { x += 3.0F; });
                                  })),
                                  "");
  ASSERT_EQ(e.tried.size(), 2U);
  EXPECT_NE(e.tried[0].find("mutants of gated_delta_rule"), std::string::npos) << e.tried[0];
  EXPECT_NE(e.tried[1].find("reruns with one key changed at a time"), std::string::npos) << e.tried[1];
}

}  // namespace
}  // namespace samestate::cli
