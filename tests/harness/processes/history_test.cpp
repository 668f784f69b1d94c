#include "harness/processes/history.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>

namespace samestate {
namespace {

Case numbered(std::uint64_t seed) {
  return parse_case("v1 retention T=3 dk=1 dv=1 seed=" + std::to_string(seed));
}

CaseResult result(bool fails) {
  CaseResult r;
  r.judgement.verdict = fails ? Verdict::fail : Verdict::pass;
  return r;
}

TEST(History, KnowsWhatWentToAProcessBefore) {
  History history;
  const Task tasks[] = {{7, numbered(7), 0, false, 1, 0},
                        {8, numbered(8), 0, false, 2, 1},
                        {5, numbered(5), 0, false, 1, 2},
                        {9, numbered(9), 0, true, 1, 3},
                        {6, numbered(6), 0, false, 1, 4}};
  // They finish in another order.
  for (const std::size_t i : {4, 0, 3, 2, 1}) history.add(tasks[i]);
  EXPECT_EQ(history.before(tasks[4]), (std::vector<std::int64_t>{7, 5}));
  EXPECT_EQ(history.before(tasks[1]), (std::vector<std::int64_t>{}));
  EXPECT_EQ(history.before({1, numbered(1), 0, false, 9, 9}), (std::vector<std::int64_t>{}));
}

std::vector<Case> numbers(std::uint64_t count) {
  std::vector<Case> cases;
  for (std::uint64_t i = 1; i <= count; ++i) cases.push_back(numbered(i));
  return cases;
}

// Each replay has a process of its own, so that what `run` counts begins anew.
TEST(Replay, LeavesOutWhatIsNotNeeded) {
  static int seen = 0;
  const CaseRunner after_3_and_17 = [](const Case& c) {
    seen |= c.seed == 3 ? 1 : c.seed == 17 ? 2 : 0;
    return result(c.seed == 99 && seen == 3);
  };
  const Replayed found = replay(numbers(40), numbered(99), after_3_and_17, {});
  EXPECT_TRUE(found.repeated);
  EXPECT_EQ(found.after, (std::vector<Case>{numbered(3), numbered(17)}));
  EXPECT_EQ(found.result.judgement.verdict, Verdict::fail);
  EXPECT_EQ(seen, 0) << "nothing ran in this process";
}

// The first case of its process leaves something: it is found without a run of all that came between.
TEST(Replay, TheFirstAndTheLastAreTriedBeforeAllOfThem) {
  static int seen = 0;
  static int runs = 0;
  const CaseRunner after_1 = [](const Case& c) {
    seen += c.seed == 1 ? 1 : 0;
    if (++runs > 20) std::abort();
    return result(c.seed == 99 && seen > 0);
  };
  const Replayed found = replay(numbers(2000), numbered(99), after_1, {});
  EXPECT_TRUE(found.repeated);
  EXPECT_EQ(found.after, std::vector<Case>{numbered(1)});
  EXPECT_EQ(found.result.judgement.verdict, Verdict::fail) << "no process ran more than 20";
}

// A sequence that takes longer than the budget is not a failure of its own.
TEST(Replay, ASequenceThatTheBudgetEndsIsNoFailure) {
  const CaseRunner slow = [](const Case&) {
    ::usleep(300000);
    return result(false);
  };
  EXPECT_FALSE(replay(numbers(5), numbered(99), slow, {60.0, 1.0}).repeated);
}

TEST(Replay, SaysWhereTheyDoNotBringIt) {
  const CaseRunner passes = [](const Case&) { return result(false); };
  const Replayed found = replay(numbers(5), numbered(99), passes, {});
  EXPECT_FALSE(found.repeated);
  EXPECT_EQ(found.after.size(), 5U);
}

TEST(Replay, ACrashCountsAndItsBudgetEndsIt) {
  static int calls = 0;
  const CaseRunner dies = [](const Case&) {
    if (++calls == 4) std::abort();
    return result(false);
  };
  const Replayed found = replay(numbers(3), numbered(99), dies, {});
  EXPECT_TRUE(found.repeated);
  EXPECT_EQ(found.after.size(), 3U);
  EXPECT_EQ(found.result.judgement.verdict, Verdict::crash);
  EXPECT_FALSE(replay(numbers(3), numbered(99), dies, {60.0, -1.0}).repeated) << "no time";
}

}  // namespace
}  // namespace samestate
