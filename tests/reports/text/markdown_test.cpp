#include "reports/text/markdown.h"

#include <gtest/gtest.h>

#include <limits>

#include "tests/reports/records.h"

namespace samestate {
namespace {

using testing::occurrences;
using testing::record;

class Markdown : public testing::Folder {};

TEST_F(Markdown, SaysWhatHappenedInTheFirstLine) {
  const auto first_line = [](const std::vector<Record>& records) {
    const std::string text = markdown_text(records, {});
    return text.substr(0, text.find('\n'));
  };
  EXPECT_EQ(first_line({record(Verdict::pass, 0.5), record(Verdict::fail, 2.0)}),
            "# samestate: 1 of 2 cases failed");
  EXPECT_EQ(first_line({record(Verdict::pass, 0.5), record(Verdict::vacuous, 0.0)}),
            "# samestate: 1 of 2 cases judged, none failed");
  EXPECT_EQ(first_line({record(Verdict::vacuous, 0.0)}), "# samestate: nothing was judged (1 case)");
  EXPECT_EQ(first_line({}), "# samestate: nothing was judged (0 cases)");
}

TEST_F(Markdown, ShowsTheWorstFirstWithItsCommand) {
  std::vector<Record> records;
  for (int i = 0; i < 30; ++i)
    records.push_back(record(Verdict::pass, 0.01 * i, "v1 case" + std::to_string(i)));
  const std::string text = markdown_text(records, {});
  EXPECT_EQ(occurrences(text, "samestate repro"), 20U);
  EXPECT_LT(text.find("v1 case29'"), text.find("v1 case28'"));
  EXPECT_EQ(text.find("v1 case9'"), std::string::npos);
  EXPECT_NE(text.find("| slow | 30 | 0.14 | 0.26 | 0.29 |"), std::string::npos) << text;
  EXPECT_NE(text.find("| gated_delta_rule | chunked | bf16 | 30 | 30 | 0 | 0.29 | 0.0625 |"),
            std::string::npos)
      << text;
  EXPECT_EQ(text.find("## Failures"), std::string::npos);
}

TEST_F(Markdown, ShowsOneCaseOfFiftyKindsInFullAndCountsTheRest) {
  std::vector<Record> records(120, record(Verdict::fail, 2.0));
  for (std::size_t i = 0; i < records.size(); ++i) records[i].law = "law" + std::to_string(i / 2);
  records[0].looks_like = "no delta term";
  const std::string text = markdown_text(records, testing::run());
  EXPECT_NE(text.find("## Failures (50 of 60 kinds, 120 cases)"), std::string::npos) << text;
  EXPECT_EQ(occurrences(text, "### 2 of "), 50U);
  EXPECT_EQ(occurrences(text, "because"), 50U);
  EXPECT_EQ(occurrences(text, "looks like: no delta term"), 1U);
  EXPECT_NE(text.find("samestate 0.1.0; commit abc123; device H100; driver 13.0; toolkit 13.1; kernel "
                      "sources 0123abcd; plugins mine.so (0123456789abcdef)."),
            std::string::npos);
}

TEST_F(Markdown, SaysAtItsHeadThatARunIsNotWhole) {
  const std::string text =
      markdown_text(std::vector{record(Verdict::pass, 0.5)}, {},
                    {1.0, "7", 3, "The budget ended before 9 of 10 cases.", {"too little"}});
  EXPECT_TRUE(text.starts_with(
      "# samestate: 1 of 1 case judged, none failed; not complete; too little was covered\n\n"
      "**The budget ended before 9 of 10 cases.** Exit 3.\n\n* too little\n"))
      << text.substr(0, 300);
}

TEST_F(Markdown, CountsWhatWasNotJudgedByReason) {
  std::vector<Record> records(3, record(Verdict::skipped, 0.0));
  records[0].judgement.reason = "no device";
  const std::string text = markdown_text(records, {});
  EXPECT_NE(text.find("| skipped | because | 2 |\n| skipped | no device | 1 |"), std::string::npos) << text;
  EXPECT_NE(text.find("| 3 | 0 | 0 | - | - |"), std::string::npos) << "a group with no ratio shows none";
}

TEST_F(Markdown, NotANumberIsShownAsSuch) {
  const std::string text =
      markdown_text(std::vector{record(Verdict::fail, std::numeric_limits<double>::quiet_NaN())}, {});
  EXPECT_NE(text.find("| 1 | 1 | 1 | nan |"), std::string::npos) << text;
}

TEST_F(Markdown, StaysOneRowWhateverAKernelSays) {
  Record odd = record(Verdict::fail, 2.0, "v1 a|b `c`\n# d");
  odd.judgement.reason = "<img src=x> | [link](y) \n\n# heading";
  const std::string text = markdown_text(std::vector{odd}, {});
  EXPECT_EQ(text.find("\n# d"), std::string::npos);
  EXPECT_EQ(text.find("\n# heading"), std::string::npos);
  EXPECT_EQ(text.find("<img"), std::string::npos);
  EXPECT_NE(text.find("``samestate repro 'v1 a\\|b `c` # d'``"), std::string::npos) << text;
}

TEST_F(Markdown, StaysBelowTheLimit) {
  std::vector<Record> records;
  for (int i = 0; i < 20000; ++i) {
    records.push_back(record(Verdict::fail, 2.0, std::string(50, 'x')));
    records.back().system = "system" + std::to_string(i) + std::string(60, '|');
    records.back().judgement.reason = std::string(10000, '*');
  }
  const std::string text = markdown_text(records, {});
  EXPECT_LE(text.size(), kMarkdownLimit);
  EXPECT_GT(text.size(), kMarkdownLimit - 1000);
  EXPECT_NE(text.find(" rows left out"), std::string::npos);
  write_markdown(path("gate.md"), records, {});
  EXPECT_EQ(testing::slurp(path("gate.md")), text);
}

}  // namespace
}  // namespace samestate
