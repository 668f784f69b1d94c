/// Tests the lines in the log of a long run whose stderr is not a terminal; tests/cli/terminal_test.sh tests
/// what a terminal shows.
#include "cli/progress.h"

#include <gtest/gtest.h>

#include <chrono>
#include <limits>
#include <regex>
#include <string>
#include <thread>

namespace samestate::cli {
namespace {

using std::chrono_literals::operator""ms;

/// Returns what `steps` writes to stderr, which is a file here.
template <class Steps>
std::string log_of(Steps&& steps) {
  ::testing::internal::CaptureStderr();
  steps();
  return ::testing::internal::GetCapturedStderr();
}

TEST(Progress, LineOfALogSaysHowFarHowBadAndHowLong) {
  const std::string log = log_of([] {
    Progress progress(3, 0.0, 0.0, 0ms);
    progress.step(0.25, false);
    progress.step(4.5, true);
    progress.step(std::numeric_limits<double>::quiet_NaN(), false);
  });
  const std::regex expected(
      "samestate: 1/3  [0-9]+ cases/s  worst ratio 0\\.250  failures 0  [0-9]+ s left\n"
      "samestate: 2/3  [0-9]+ cases/s  worst ratio 4\\.500  failures 1  [0-9]+ s left\n"
      "samestate: 3/3  [0-9]+ cases/s  worst ratio 4\\.500  failures 1  0 s left\n");
  EXPECT_TRUE(std::regex_match(log, expected)) << log;
}

// For cases that take seconds each, as in an interpreter, no rate of 0 cases per second is printed.
TEST(Progress, SlowCasesHaveTheirSeconds) {
  const std::string log = log_of([] {
    Progress progress(9, 0.0, 0.0, 0ms);
    std::this_thread::sleep_for(1200ms);
    progress.step(0.25, false);
  });
  EXPECT_NE(log.find("1/9  1.2 s a case  "), std::string::npos) << log;
}

// The ratio of a value that should be exact has forty digits, which are of no use.
TEST(Progress, AVastRatioIsShort) {
  const std::string log = log_of([] {
    Progress progress(1, 0.0, 0.0, 0ms);
    progress.step(3.0077e37, true);
  });
  EXPECT_NE(log.find("  worst ratio 3.0e+37  failures 1"), std::string::npos) << log;
}

// A search with an unknown end has no time left, and one without ratios has no worst ratio.
TEST(Progress, NothingIsSaidOfAnEndThatNobodyKnows) {
  const std::string log = log_of([] {
    Progress progress(0, 0.0, 0.0, 0ms);
    progress.step(0.25, false);
    progress.at("data keys shared");
  });
  const std::regex expected(
      "samestate: 1  [0-9]+ cases/s  worst ratio 0\\.250  failures 0\n"
      "samestate: step 2, [0-9]+ s: data keys shared\n");
  EXPECT_TRUE(std::regex_match(log, expected)) << log;
}

TEST(Progress, LinesOfALogArePausesApart) {
  const std::string log = log_of([] {
    Progress progress(100, 0.0, 0.0, 200ms);
    for (int i = 0; i < 10; ++i) progress.step(0.5, false);
    std::this_thread::sleep_for(250ms);
    // The first line, and none of those at its heels, the last step's among them.
    for (int i = 0; i < 90; ++i) progress.step(0.5, false);
  });
  EXPECT_TRUE(log.starts_with("samestate: 11/100  ")) << log;
  EXPECT_EQ(log.find('\n') + 1, log.size()) << log;
}

TEST(Progress, ShortRunLeavesNoLineInALog) {
  EXPECT_EQ(Progress::kPauseOfLog, std::chrono::seconds(30));
  const std::string log = log_of([] {
    Progress progress(2);
    progress.step(0.5, false);
    progress.step(0.5, false);
    progress.clear();
  });
  EXPECT_EQ(log, "");
}

TEST(Progress, TimeLeftGoesByWorkAndEndsWithTheBudget) {
  // A tenth of the work in the one step of two: nine times as long is left, not as long again.
  const std::string work = log_of([] {
    Progress progress(2, 0.0, 1000.0, 0ms);
    std::this_thread::sleep_for(200ms);
    progress.step(0.5, false, 100.0);
  });
  std::smatch left;
  ASSERT_TRUE(std::regex_search(work, left, std::regex("  ([0-9]+) s left\n"))) << work;
  EXPECT_GE(std::stoi(left[1]), 2) << work;
  EXPECT_LT(std::stoi(left[1]), 100) << work;
  // Without a number of cases there is the budget alone.
  const std::string budget = log_of([] {
    Progress progress(0, 1000.0, 0.0, 0ms);
    progress.step(0.5, false);
  });
  EXPECT_TRUE(std::regex_search(budget, std::regex("^samestate: 1  .*  (9[0-9][0-9]|1000) s left\n")))
      << budget;
}

}  // namespace
}  // namespace samestate::cli
