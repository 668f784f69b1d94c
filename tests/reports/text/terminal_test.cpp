#include "reports/text/terminal.h"

#include <gtest/gtest.h>

#include "reports/records/summary.h"
#include "reports/text/junit.h"
#include "reports/text/markdown.h"
#include "tests/reports/records.h"

namespace samestate {
namespace {

using testing::occurrences;
using testing::record;

TEST(Terminal, FitsOneScreen) {
  std::vector<Record> records;
  for (int i = 0; i < 100; ++i) {
    records.push_back(record(i % 2 ? Verdict::fail : Verdict::vacuous, i, "v1 case" + std::to_string(i)));
    records.back().regime = "regime" + std::to_string(i);
    records.back().judgement.reason = "reason\n" + std::to_string(i);
  }
  const std::string text = terminal_text(records);
  EXPECT_LE(occurrences(text, "\n"), 40U) << text;
  EXPECT_EQ(occurrences(text, "samestate repro"), 10U);
  EXPECT_NE(text.find("failures (5 of 50)"), std::string::npos);
  EXPECT_NE(text.find("ratio by regime (8 of 50)"), std::string::npos);
  EXPECT_NE(text.find("not judged (5 of 50)"), std::string::npos);
  EXPECT_EQ(text.rfind("100 cases, 50 judged: fail 50, vacuous 50\n", 0), 0U) << text;
  EXPECT_LT(text.find("v1 case99"), text.find("v1 case97"));
  EXPECT_EQ(occurrences(text, "v1 case99'"), 1U) << "a failure is not shown again among those that stand out";
  EXPECT_NE(
      text.find("next farthest above its group: ratio (error / bound, above 1 fails), median of the group\n"
                "  89 "),
      std::string::npos)
      << text;
}

// A line of a plugin's kernel is no case without the plugin.
TEST(Reports, EveryCommandLoadsThePluginsThatItsLineNeeds) {
  const std::vector<Record> records = {record(Verdict::fail, 2.0, "v1 a"),
                                       record(Verdict::pass, 0.5, "v1 b")};
  samestate::Run run = testing::run();
  run.options = " --plugin mine.so";
  for (const std::string& text :
       {terminal_text(records, run.options), markdown_text(records, run), junit_text(records, run)}) {
    EXPECT_GT(occurrences(text, "samestate repro"), 0U) << text;
    EXPECT_EQ(occurrences(text, "samestate repro"),
              occurrences(text, "samestate repro --plugin mine.so 'v1 "))
        << text;
  }
  EXPECT_EQ(bench_command(records[0], run.options), "samestate bench --plugin mine.so --case 'v1 a'");
}

TEST(Terminal, SaysWhenThereIsNothing) { EXPECT_EQ(terminal_text({}), "0 cases, 0 judged: no case\n"); }

}  // namespace
}  // namespace samestate
