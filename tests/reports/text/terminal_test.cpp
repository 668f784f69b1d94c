#include "reports/text/terminal.h"

#include <gtest/gtest.h>

#include "oracles/reasons.h"
#include "reports/page/html.h"
#include "reports/records/compare.h"
#include "reports/records/summary.h"
#include "reports/text/compare_text.h"
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
    records.push_back(record(i % 2   ? Verdict::fail
                             : i % 4 ? Verdict::pass
                                     : Verdict::vacuous,
                             i, "v1 case" + std::to_string(i)));
    records.back().regime = "regime" + std::to_string(i);
    records.back().judgement.reason = "reason\n" + std::string(static_cast<std::size_t>(i), 'x');
    records.back().kernel = "kernel" + std::to_string(i / 4);
    records.back().looks_like = "no delta term";
  }
  const std::string text = terminal_text(records);
  EXPECT_LE(occurrences(text, "\n"), 40U) << text;
  EXPECT_EQ(occurrences(text, "samestate repro"), 7U) << text;
  EXPECT_NE(text.find("failures of 25 kinds (5 of 25)"), std::string::npos) << text;
  EXPECT_EQ(occurrences(text, "\n  2 of kernel"), 5U) << text;
  EXPECT_EQ(occurrences(text, "\n    looks like: no delta term\n"), 5U);
  EXPECT_NE(text.find("ratio by regime (4 of 75)"), std::string::npos) << text;
  EXPECT_NE(text.find("not judged (2 of 25)"), std::string::npos);
  EXPECT_EQ(text.rfind("100 cases, 75 judged: fail 50, vacuous 25, pass 25\n", 0), 0U) << text;
  EXPECT_NE(
      text.find("\nfarthest above its group: ratio (error / bound, above 1 fails), median of the group\n"),
      std::string::npos)
      << text;
  EXPECT_EQ(text.find('\033'), std::string::npos) << "a pipe gets no colours";
  EXPECT_NE(terminal_text(records, true).find("\033[31;1mfail 50"), std::string::npos);
}

// A pass of a machine without a device says in its first lines what it did not run.
TEST(Terminal, SaysFirstWhatWasNotRunForWantOfADevice) {
  std::vector<Record> records = {record(Verdict::pass, 0.5, "v1 a"), record(Verdict::skipped, 0, "v1 b")};
  records[1].kernel = "cuda.one";
  EXPECT_EQ(terminal_text(records).find("for want of a device"), std::string::npos);
  records[1].judgement.gate = kNoDevice;
  const std::string clause =
      "not run for want of a device: 1 case of 1 kernel; on a machine with one: samestate gate --device cuda";
  EXPECT_NE(terminal_text(records).find("judged: pass 1, skipped 1\n" + clause + "\n"), std::string::npos);
  const std::string markdown = markdown_text(records, {}, {});
  EXPECT_NE(markdown.find("none failed\n\n**" + clause), std::string::npos) << markdown;
}

// A line of a plugin's kernel is not a case without the plugin.
TEST(Reports, EveryCommandLoadsThePluginsThatItsLineNeeds) {
  std::vector<Record> records = {record(Verdict::fail, 2.0, "v1 a"), record(Verdict::pass, 0.5, "v1 b")};
  for (Record& r : records) r.options = " --plugin mine.so";
  RecordFile now, before;
  now.records = before.records = records;
  before.records[0].judgement.verdict = Verdict::pass;
  const Comparison compared = compare(before, now, 2.0);
  ReportInput input;
  input.sources.push_back({"gate.jsonl", now});
  const samestate::Run run = testing::run();
  for (const std::string& text :
       {terminal_text(records), markdown_text(records, run), junit_text(records, run), compare_text(compared),
        compare_markdown(compared, "a", "b"), html_gate(report_data(input), "")}) {
    EXPECT_GT(occurrences(text, "samestate repro"), 0U) << text;
    EXPECT_EQ(occurrences(text, "samestate repro"), occurrences(text, "samestate repro --plugin mine.so "))
        << text;
  }
  EXPECT_EQ(bench_command(records[0]), "samestate bench --plugin mine.so --case 'v1 a'");
}

TEST(Terminal, SaysWhenThereIsNothing) { EXPECT_EQ(terminal_text({}), "0 cases, 0 judged: no case\n"); }

}  // namespace
}  // namespace samestate
