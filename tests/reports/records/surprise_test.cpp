#include "reports/records/surprise.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "reports/page/html.h"
#include "reports/text/markdown.h"
#include "reports/text/terminal.h"
#include "tests/reports/records.h"

namespace samestate {
namespace {

using testing::occurrences;
using testing::record;

/// `count` cases of one system, judged by `gate`, with ratios from `least` in equal steps.
std::vector<Record> group_of(const std::string& system, const std::string& gate, int count, double least,
                             double step) {
  std::vector<Record> records;
  for (int i = 0; i < count; ++i) {
    records.push_back(record(Verdict::pass, least + i * step, "v1 " + system + " seed=" + std::to_string(i)));
    records.back().system = system;
    records.back().judgement.gate = gate;
  }
  return records;
}

void append(std::vector<Record>& records, const std::vector<Record>& more) {
  records.insert(records.end(), more.begin(), more.end());
}

/// Twenty outputs of one rounding, a group with high ratios, and one whose tenth case is three times its peers and
/// still far below its bound and below all the others.
std::vector<Record> planted() {
  std::vector<Record> records = group_of("rms_norm", "element", 20, 0.98, 0.001);
  append(records, group_of("retention", "row", 20, 0.7, 0.01));
  append(records, group_of("softmax_attention", "element", 9, 0.030, 0.001));
  records.push_back(record(Verdict::pass, 0.21, "v1 planted"));
  records.back().system = "softmax_attention";
  records.back().judgement.gate = "element";
  return records;
}

TEST(Surprise, ACaseFarAboveItsGroupComesFirst) {
  const std::vector<Record> records = planted();
  const Surprises surprises = surprises_of(records);
  ASSERT_EQ(surprises.ranked.size(), 30U);
  const Surprise& first = surprises.ranked.front();
  EXPECT_EQ(records[first.record].line, "v1 planted");
  EXPECT_EQ(first.group, 10);
  EXPECT_EQ(first.median, 0.034);
  EXPECT_DOUBLE_EQ(first.tail, std::log(0.21 / 0.034) / std::log(1.25)) << "the ninth decile is within 1.25";
  EXPECT_GT(first.tail, 3 * surprises.ranked[1].tail);
}

TEST(Surprise, AttainedBoundsAreCountedAndNotRanked) {
  const std::vector<Record> records = planted();
  const Surprises surprises = surprises_of(records);
  ASSERT_EQ(surprises.attained.size(), 1U);
  EXPECT_EQ(surprises.attained[0].system, "rms_norm");
  EXPECT_EQ(surprises.attained[0].cases, 20);
  EXPECT_EQ(surprises.attained[0].least, 0.98);
  EXPECT_EQ(surprises.attained_cases(), 20);
  for (const Surprise& s : surprises.ranked) EXPECT_NE(records[s.record].system, "rms_norm");
  EXPECT_EQ(attained_line(surprises),
            "not ranked: 20 cases of 1 group whose ratios are all 0.95 to 1 (or 0: exact), as of an output "
            "that is rounded once");
  EXPECT_EQ(attained_line({}), "");
}

TEST(Surprise, OnlyAWholeGroupHeldAgainstItsWorstCaseAttainsIt) {
  std::vector<Record> records = group_of("rms_norm", "element", 20, 0.98, 0.001);
  records[7].judgement.ratio = 0.5;
  EXPECT_TRUE(surprises_of(records).attained.empty()) << "one case below the whisker";
  records[7].judgement.ratio = 0.0;
  EXPECT_EQ(surprises_of(records).attained_cases(), 20) << "an exact one of them";
  records[7].judgement.ratio = 1.5;
  records[7].judgement.verdict = Verdict::fail;
  const Surprises failing = surprises_of(records);
  EXPECT_TRUE(failing.attained.empty()) << "one case that failed";
  EXPECT_EQ(failing.ranked.front().record, 7U);
  EXPECT_TRUE(surprises_of(group_of("retention", "row", 20, 0.98, 0.001)).attained.empty())
      << "a bound on the typical row is not attained by construction";
}

TEST(Surprise, FailuresComeFirstWhateverTheirGroup) {
  std::vector<Record> records = planted();
  for (const double ratio : {1.2, std::numeric_limits<double>::infinity(), std::nan("")}) {
    records.push_back(record(Verdict::fail, ratio, "v1 fails"));
    records.back().system = "alone" + std::to_string(records.size());
  }
  const std::size_t last = records.size() - 1;
  const Surprises surprises = surprises_of(records);
  EXPECT_EQ(surprises.ranked[0].record, last) << "NaN";
  EXPECT_EQ(surprises.ranked[1].record, last - 1);
  EXPECT_EQ(surprises.ranked[2].record, last - 2);
  EXPECT_EQ(records[surprises.ranked[3].record].line, "v1 planted");
}

TEST(Surprise, ASmallGroupHasNoTailAndAnExactCaseNoWeight) {
  std::vector<Record> records = group_of("retention", "row", static_cast<int>(kLeastGroup) - 1, 0.1, 0.0);
  records.push_back(record(Verdict::pass, 0.0, "v1 exact"));
  records.back().system = "retention";
  records.back().judgement.gate = "row";
  const Surprises small = surprises_of(records);
  for (const Surprise& s : small.ranked) {
    EXPECT_TRUE(std::isnan(s.median));
    EXPECT_EQ(s.tail, 0.0);
    EXPECT_EQ(s.group, kLeastGroup - 1);
  }
  EXPECT_EQ(records[small.ranked.back().record].line, "v1 exact");
  EXPECT_TRUE(surprises_of({}).ranked.empty());
  EXPECT_TRUE(surprises_of(std::vector{record(Verdict::vacuous, 9.0)}).ranked.empty());
}

TEST(Surprise, EveryReportRanksAlike) {
  const std::vector<Record> records = planted();
  ReportInput input;
  input.sources.push_back({"a.jsonl", {}});
  input.sources[0].content.records = records;
  const std::string attained = attained_line(surprises_of(records));
  for (const std::string& text :
       {terminal_text(records), markdown_text(records, {}), html_gate(report_data(input), "")}) {
    const std::size_t planted_at = text.find("v1 planted");
    ASSERT_NE(planted_at, text.npos) << text;
    EXPECT_LT(planted_at, text.find("v1 retention seed=19"));
    EXPECT_EQ(occurrences(text, "v1 rms_norm"), 0U) << "ratios of 1 by construction";
    EXPECT_NE(text.find(attained), text.npos) << text;
  }
}

}  // namespace
}  // namespace samestate
