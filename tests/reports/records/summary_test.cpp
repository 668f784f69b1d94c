#include "reports/records/summary.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/facts.h"
#include "tests/reports/records.h"

namespace samestate {
namespace {

using testing::record;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

TEST(Spread, IsNearestRank) {
  std::vector<double> values;
  for (int i = 10; i >= 1; --i) values.push_back(i);
  EXPECT_EQ(spread_of(values).p50, 5.0);
  EXPECT_EQ(spread_of(values).p90, 9.0);
  EXPECT_EQ(spread_of(values).max, 10.0);
  EXPECT_EQ(spread_of({7.0}).p50, 7.0);
  EXPECT_EQ(spread_of({7.0, 8.0}).p50, 7.0);
  EXPECT_EQ(spread_of({7.0, 8.0}).p90, 8.0);
  EXPECT_TRUE(std::isnan(spread_of({}).max));
}

TEST(Spread, NotANumberIsTheWorst) {
  EXPECT_TRUE(std::isnan(spread_of({kNaN, 1.0, kInfinity}).max));
  EXPECT_EQ(spread_of({kNaN, 1.0, kInfinity}).p50, kInfinity);
}

TEST(Summary, CountsEveryVerdictOnce) {
  std::vector<Record> records;
  for (std::size_t i = 0; i < kVerdictCount; ++i) {
    for (std::size_t n = 0; n <= i; ++n) records.push_back(record(static_cast<Verdict>(i), 0.5));
  }
  const Summary summary = summarise(records);
  for (std::size_t i = 0; i < kVerdictCount; ++i) {
    EXPECT_EQ(summary.counts[i], static_cast<std::int64_t>(i) + 1);
    EXPECT_NE(name_of(static_cast<Verdict>(i)), "unknown");
  }
  EXPECT_EQ(name_of(static_cast<Verdict>(kVerdictCount)), "unknown")
      << "a new verdict: reports must learn it";
  EXPECT_EQ(summary.cases, 36);
  EXPECT_EQ(summary.judged, 1 + 2 + 8);
  EXPECT_EQ(summary.failures.size(), 2U + 6U + 7U + 8U);
  std::int64_t not_judged = 0;
  for (const NotJudged& row : summary.not_judged) not_judged += row.cases;
  EXPECT_EQ(not_judged, 3 + 4 + 5);
  EXPECT_EQ(summary.judged + not_judged + summary.count(Verdict::crash) + summary.count(Verdict::timeout),
            summary.cases);
  EXPECT_EQ(counts_line(summary),
            "crash 6, timeout 7, fail 2, flaky 8, vacuous 3, pass 1, unsupported 4, skipped 5");
  EXPECT_EQ(counts_line(summarise({})), "no case");
}

TEST(Summary, TheWorstComesFirst) {
  const std::vector<Record> records = {record(Verdict::pass, 0.9),  record(Verdict::fail, 3.0),
                                       record(Verdict::fail, kNaN), record(Verdict::vacuous, 99.0),
                                       record(Verdict::crash, 0.0), record(Verdict::fail, kInfinity)};
  const Summary summary = summarise(records);
  EXPECT_EQ(summary.failures, (std::vector<std::size_t>{4, 2, 5, 1}));
}

TEST(Summary, AVacuousRatioReachesNoStatistic) {
  std::vector<Record> records = {record(Verdict::pass, 0.25), record(Verdict::vacuous, 99.0),
                                 record(Verdict::skipped, 98.0)};
  const Summary summary = summarise(records);
  ASSERT_EQ(summary.groups.size(), 1U);
  EXPECT_EQ(summary.groups[0].worst_ratio, 0.25);
  EXPECT_EQ(summary.groups[0].cases, 3);
  EXPECT_EQ(summary.groups[0].judged, 1);
  ASSERT_EQ(summary.regimes.size(), 1U);
  EXPECT_EQ(summary.regimes[0].ratio.max, 0.25);
}

TEST(Summary, StagesOfLayers) {
  std::vector<Record> records(3, record(Verdict::pass, 0.25));
  for (Record& r : records) r.system = "a";
  records[0].judgement.stages = {{"rule", Verdict::pass, 0.5, "element"},
                                 {"norm", Verdict::vacuous, 9.0, ""}};
  records[1].judgement.stages = {{"norm", Verdict::fail, 3.0, "twin share"},
                                 {"rule", Verdict::pass, 0.75, "element"}};
  const Summary summary = summarise(records);
  ASSERT_EQ(summary.stages.size(), 2U);
  EXPECT_EQ(summary.stages[0].stage, "norm");
  EXPECT_EQ(summary.stages[0].judged, 1);
  EXPECT_EQ(summary.stages[0].failures, 1);
  EXPECT_EQ(summary.stages[1].judged, 2);
  EXPECT_EQ(summary.stages[1].ratio.max, 0.75);
}

TEST(Summary, GroupsBySystemFormAndContract) {
  std::vector<Record> records(5, record(Verdict::pass, 0.5));
  records[1].contract = "fp32";
  records[1].judgement.ratio = 0.75;
  records[2].form = "recurrent";
  records[2].judgement.verdict = Verdict::skipped;
  records[3].system = "retention";
  records[3].judgement.ratio = 2.0;
  records[3].judgement.verdict = Verdict::fail;
  records[4].judgement.median_ratio = 0.5;
  const Summary summary = summarise(records);
  ASSERT_EQ(summary.groups.size(), 4U);
  EXPECT_EQ(summary.groups[0].system, "retention");
  EXPECT_EQ(summary.groups[0].failures, 1);
  EXPECT_EQ(summary.groups[1].contract, "fp32");
  EXPECT_EQ(summary.groups[2].cases, 2);
  EXPECT_EQ(summary.groups[2].median_ratio, 0.0625);
  EXPECT_EQ(summary.groups[3].judged, 0) << "a group in which nothing was judged stands last";
}

TEST(Summary, CountsReasons) {
  std::vector<Record> records(5, record(Verdict::skipped, 0.0));
  for (Record& r : records) r.judgement.reason = "no device";
  records[0].judgement.reason = "dk > 256";
  records[1].judgement.verdict = Verdict::unsupported;
  const Summary summary = summarise(records);
  ASSERT_EQ(summary.not_judged.size(), 3U);
  EXPECT_EQ(summary.not_judged[0].reason, "no device");
  EXPECT_EQ(summary.not_judged[0].cases, 3);
}

TEST(Summary, ReproCommandSurvivesAShell) {
  EXPECT_EQ(repro_command(record(Verdict::fail, 2.0, "v1 it's; $(x)")),
            R"(samestate repro 'v1 it'\''s; $(x)')");
}

TEST(Summary, WhatAClientHasIsRepeatedByTheClient) {
  Record of_client = record(Verdict::fail, 2.0, "v1 x");
  of_client.options = std::string(kOfClient) + " --strict";
  of_client.after = {"v1 y"};
  EXPECT_EQ(repro_command(of_client), "samestate serve --strict --after 'v1 y' --case 'v1 x'");
}

TEST(Summary, JudgementLineNamesPlaceAndReason) {
  const std::string line = judgement_line(record(Verdict::fail, 2.5).judgement);
  EXPECT_NE(line.find("ratio 2.5 (row)"), std::string::npos) << line;
  EXPECT_EQ(lacking(line, "sequence 0 head 2 token 17 channel 3"), "") << line;
  EXPECT_NE(line.find("because"), std::string::npos) << line;
  EXPECT_EQ(judgement_line(record(Verdict::skipped, 0.0).judgement), "skipped: because");
  EXPECT_NE(line.find("expected -0, actual 0.1"), std::string::npos) << line;
  Judgement placed;
  placed.worst = {-1, 3, -1, -1};
  EXPECT_EQ(place_of(placed), "head 3");
  // The row of a state is not a token, and neither is that of named tensors.
  placed.worst = {0, 1, 2, 3};
  for (const char* gate : {"state", "exact state", "segment state", "hard state"}) {
    placed.gate = gate;
    EXPECT_EQ(place_of(placed), "sequence 0, head 1, row 2, column 3 of the state");
  }
  // Their heads are known where rows are tokens.
  for (const char* gate : {"element", "sampled row", "twin element", "twin share", "law"}) {
    placed.gate = gate;
    placed.worst = {0, 1, 2, 3};
    EXPECT_EQ(place_of(placed), "sequence 0, head 1, token 2, channel 3") << gate;
    placed.worst = {0, 1, 2, -1};
    EXPECT_EQ(place_of(placed), "sequence 0, head 1, token 2") << gate;
    placed.worst = {0, -1, 2, 3};
    EXPECT_EQ(place_of(placed), "sequence 0, row 2, column 3") << gate;
  }
  Judgement bare;
  bare.verdict = Verdict::pass;
  bare.gate = "row";
  bare.ratio = 0.5;
  bare.error = 1.0;
  bare.bound = 2.0;
  EXPECT_EQ(judgement_line(bare), "pass: ratio 0.5 (row), error 1 (2-norm of the row's error), bound 2");
  bare.expected = 1.0;
  EXPECT_NE(judgement_line(bare).find("expected 1, actual nan"), std::string::npos);
}

}  // namespace
}  // namespace samestate
