#include "reports/records/compare.h"

#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "reports/text/compare_text.h"
#include "tests/facts.h"
#include "tests/reports/records.h"

namespace samestate {
namespace {

using testing::record;
using Kind = Change::Kind;

RecordFile file(std::vector<Record> records) {
  RecordFile made;
  made.records = std::move(records);
  return made;
}

/// The one change from a to b, where there is one.
Comparison of(const Record& a, const Record& b) { return compare(file({a}), file({b}), 2.0); }

TEST(Compare, NothingChangedIsNoChange) {
  const Comparison c = of(record(Verdict::pass, 0.5), record(Verdict::pass, 0.5));
  EXPECT_EQ(c.common, 1);
  EXPECT_EQ(c.unchanged, 1);
  EXPECT_TRUE(c.changes.empty());
  EXPECT_EQ(c.regressions(), 0);
}

TEST(Compare, ARatioIsARegressionBeyondTheFactorAndNotAtIt) {
  EXPECT_EQ(of(record(Verdict::pass, 0.25), record(Verdict::pass, 0.5)).changes.at(0).kind,
            Kind::ratio_changed);
  EXPECT_EQ(of(record(Verdict::pass, 0.25), record(Verdict::pass, 0.51)).changes.at(0).kind,
            Kind::ratio_grew);
  EXPECT_EQ(of(record(Verdict::pass, 0.51), record(Verdict::pass, 0.25)).changes.at(0).kind,
            Kind::ratio_fell);
  EXPECT_EQ(of(record(Verdict::pass, 0.0), record(Verdict::pass, 1e-9)).changes.at(0).kind, Kind::ratio_grew);
  EXPECT_EQ(
      compare(file({record(Verdict::pass, 0.25)}), file({record(Verdict::pass, 0.51)}), 3.0).regressions(),
      0);
}

TEST(Compare, TwoKernelsOfASystemMeetUnderOneName) {
  Record old = record(Verdict::pass, 0.25, "v1 delta_rule T=65 kernel=my.v1 seed=0x2a");
  Record last = record(Verdict::pass, 0.25, "v1 delta_rule T=66 kernel=my.v1");
  old.kernel = last.kernel = "my.v1";
  Record now = record(Verdict::fail, 1.5, "v1 delta_rule T=65 seed=0x2a");
  Record another = record(Verdict::fail, 1.5, "v1 delta_rule T=66");
  now.kernel = "my.v2";
  const RecordFile before = of_kernel(file({old, last}), "my.v1", "my.v2");
  const Comparison c = compare(before, of_kernel(file({now, another}), "my.v2", "my.v2"), 2.0);
  EXPECT_EQ(c.common, 1);
  EXPECT_EQ(c.regressions(), 1);
  EXPECT_EQ(c.count(Kind::gone), 1);  // `another` is of a third kernel
  EXPECT_EQ(before.records.at(1).line, "v1 delta_rule T=66");
  EXPECT_THROW((void)of_kernel(file({old}), "my.v3", "my.v2"), Error);
}

TEST(Compare, NotANumberIsTheWorstRatio) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double infinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(of(record(Verdict::fail, infinity), record(Verdict::fail, nan)).changes.at(0).kind,
            Kind::ratio_grew);
  EXPECT_EQ(of(record(Verdict::fail, nan), record(Verdict::fail, 3.0)).changes.at(0).kind, Kind::ratio_fell);
  EXPECT_EQ(of(record(Verdict::fail, nan), record(Verdict::fail, nan)).unchanged, 1);
}

TEST(Compare, EveryStepDownTheVerdictsIsARegressionAndBackIsNone) {
  const Verdict order[] = {Verdict::pass,  Verdict::skipped, Verdict::unsupported, Verdict::vacuous,
                           Verdict::flaky, Verdict::fail,    Verdict::timeout,     Verdict::crash};
  for (std::size_t i = 0; i + 1 < std::size(order); ++i) {
    const Record better = record(order[i], 0.5);
    const Record worse = record(order[i + 1], 0.5);
    EXPECT_EQ(of(better, worse).changes.at(0).kind, Kind::verdict_worse) << i;
    EXPECT_EQ(of(worse, better).changes.at(0).kind, Kind::verdict_better) << i;
    EXPECT_EQ(of(worse, better).regressions(), 0) << i;
  }
}

TEST(Compare, NewAndGoneCasesAreListedAndOnlyANewFailureIsARegression) {
  const Comparison c =
      compare(file({record(Verdict::fail, 9.0, "v1 a")}),
              file({record(Verdict::pass, 0.5, "v1 b"), record(Verdict::fail, 2.0, "v1 c")}), 2.0);
  EXPECT_EQ(c.common, 0);
  EXPECT_EQ(c.count(Kind::gone), 1);
  EXPECT_EQ(c.count(Kind::appeared), 1);
  EXPECT_EQ(c.count(Kind::new_failure), 1);
  EXPECT_EQ(c.regressions(), 1);
}

TEST(Compare, AnotherKernelLawOrCurveIsAnotherCase) {
  Record other = record(Verdict::fail, 3.0);
  other.kernel = "cuda.gated_delta_rule.chunked";
  EXPECT_EQ(of(record(Verdict::pass, 0.5), other).common, 0);
  other = record(Verdict::fail, 3.0);
  other.law = "causality";
  EXPECT_EQ(of(record(Verdict::pass, 0.5), other).common, 0);
  Measurement m;
  m.record = record(Verdict::pass, 0.5);
  m.series = "chunk";
  RecordFile points;
  points.points = {m};
  EXPECT_EQ(compare(points, points, 2.0).unchanged, 1);
  RecordFile another = points;
  another.points[0].curve = "other";
  EXPECT_EQ(compare(points, another, 2.0).common, 0);
}

TEST(Compare, OfARepeatedCaseTheLastRecordCounts) {
  const Comparison c = compare(file({record(Verdict::fail, 3.0), record(Verdict::pass, 0.5)}),
                               file({record(Verdict::pass, 0.5)}), 2.0);
  EXPECT_EQ(c.repeated, 1);
  EXPECT_EQ(c.unchanged, 1);
}

/// A run of a gate: its part, and whether its last line is there.
RecordFile gate(std::vector<Record> records, const std::string& seed, bool finished, std::int64_t shard = 0) {
  RecordFile made = file(std::move(records));
  Run run;
  run.part = {"gate", shard, 2, 2, 4, "plan", {{"seed", seed}, {"timeout", seed + "m"}}};
  made.runs = {run};
  made.ends.resize(1);
  made.ends[0].finished = finished;
  made.places.resize(made.records.size());
  return made;
}

TEST(Compare, WhatACutRecordDidNotComeToIsNotGoneAndNoCrash) {
  const std::vector<Record> all = {record(Verdict::pass, 0.5, "v1 a"), record(Verdict::pass, 0.5, "v1 b"),
                                   record(Verdict::pass, 0.5, "v1 c")};
  const RecordFile whole = gate(all, "1", true);
  // As read_json_lines makes it: what began and never ended is a crash.
  RecordFile cut = gate({all[0], record(Verdict::crash, 0.0, "v1 b")}, "1", false);
  cut.places[1].ended = false;
  EXPECT_TRUE(is_cut(cut));
  EXPECT_FALSE(is_cut(whole));
  const Comparison c = compare(whole, cut, 2.0);
  EXPECT_EQ(c.regressions(), 0);
  EXPECT_EQ(c.count(Kind::gone), 0);
  EXPECT_EQ(c.not_judged, 2);
  const std::string text = compare_text(c);
  EXPECT_NE(text.find("1 case in common, 1 unchanged, 2 not judged in the second record\n"), text.npos)
      << text;
  EXPECT_NE(text.find("the second record: It is cut: the end of its run is missing"), text.npos) << text;
  EXPECT_EQ(lacking(text, "1 began ended"), "") << text;
  EXPECT_NE(compare_text(compare(cut, whole, 2.0)).find("the first record: It is cut"), text.npos);
  EXPECT_EQ(nlohmann::json::parse(compare_json(c))["not_judged"], 2);
  EXPECT_NE(compare_markdown(c, "a", "b").find("**the second record: It is cut"), text.npos);
  // In a complete record it was a verdict, and a missing case is gone.
  cut.ends[0].finished = true;
  cut.places[1].ended = true;
  EXPECT_EQ(compare(whole, cut, 2.0).regressions(), 1);
  EXPECT_EQ(compare(whole, cut, 2.0).count(Kind::gone), 1);
  // A last line without its end, a sweep without all of its points; of a file of before nothing is known.
  RecordFile other = whole;
  other.cut_lines = 1;
  EXPECT_TRUE(is_cut(other));
  other = gate({}, "1", false);
  other.runs[0].part.verb = "sweep";
  other.point_places = {{0, 0}, {0, 0}};
  EXPECT_TRUE(is_cut(other));
  other.point_places = {{0, 0}, {0, 1}};
  EXPECT_FALSE(is_cut(other));
  EXPECT_FALSE(is_cut(file(all)));
  // The kernel that is left has its own places.
  cut = gate({record(Verdict::pass, 0.5, "v1 a"), record(Verdict::crash, 0.0, "v1 b")}, "1", false);
  cut.records[1].kernel = "my.v1";
  cut.places[1].ended = false;
  EXPECT_EQ(compare(whole, of_kernel(cut, "my.v1", "my.v2"), 2.0).after, 0);
}

TEST(Compare, OtherSeedsAndShardsAreNamed) {
  const std::vector<Record> one = {record(Verdict::pass, 0.5, "v1 a")};
  const RecordFile first = gate(one, "1", true);
  EXPECT_TRUE(compare(first, gate(one, "1", true), 2.0).unlike.empty());
  const Comparison c = compare(first, gate(one, "2", true, 1), 2.0);
  EXPECT_EQ(c.unlike, (std::vector<std::string>{"seed 1 and 2", "shard 0/2 and 1/2"}));
  EXPECT_EQ(lacking(compare_text(c), "seed 1 2 shard 0/2 1/2 `samestate merge`"), "") << compare_text(c);
  RecordFile search = gate(one, "1", true);
  search.runs[0].part.verb = "fuzz";
  EXPECT_EQ(compare(first, search, 2.0).unlike, (std::vector<std::string>{"verb gate and fuzz"}));
  EXPECT_TRUE(compare(first, file(one), 2.0).unlike.empty()) << "a file of before says nothing";
}

// A record of before names no policy, and was the gate's.
TEST(Compare, OtherPoliciesOfCommonCasesAreCountedAndNamed) {
  const auto judged = [](const char* line, const char* policy) {
    Record made = record(Verdict::pass, 0.5, line);
    made.policy = policy;
    return made;
  };
  const RecordFile gate = file({judged("v1 a", "gate"), judged("v1 b", ""), judged("v1 c", "gate")});
  const RecordFile same = file({judged("v1 a", ""), judged("v1 b", "gate"), judged("v1 d", "deep")});
  EXPECT_TRUE(compare(gate, same, 2.0).policies.empty());
  EXPECT_EQ(compare_text(compare(gate, same, 2.0)).find("policy"), std::string::npos);
  const Comparison c =
      compare(gate, file({judged("v1 a", "deep"), judged("v1 b", "deep"), judged("v1 c", "file")}), 2.0);
  ASSERT_EQ(c.policies.size(), 2U);
  EXPECT_EQ(c.policies[0].before, "gate");
  EXPECT_EQ(c.policies[0].after, "deep");
  EXPECT_EQ(c.policies[0].cases, 2);
  EXPECT_EQ(c.policies[1].after, "file");
  EXPECT_EQ(c.regressions(), 0);
  for (const char* fact : {"2 cases", "policy gate", "deep", "file"}) {
    EXPECT_NE(compare_text(c).find(fact), std::string::npos) << fact;
    EXPECT_NE(compare_markdown(c, "a", "b").find(fact), std::string::npos) << fact;
  }
  const auto parsed = nlohmann::json::parse(compare_json(c));
  EXPECT_EQ(parsed["policies"][0], nlohmann::json({{"before", "gate"}, {"after", "deep"}, {"cases", 2}}));
}

TEST(Compare, TheWorstStandFirst) {
  const Comparison c =
      compare(file({record(Verdict::pass, 0.1, "v1 a"), record(Verdict::pass, 0.1, "v1 b"),
                    record(Verdict::pass, 0.1, "v1 c"), record(Verdict::pass, 0.1, "v1 d")}),
              file({record(Verdict::pass, 0.4, "v1 a"), record(Verdict::fail, 2.0, "v1 b"),
                    record(Verdict::pass, 0.9, "v1 c"), record(Verdict::crash, 0.0, "v1 d")}),
              2.0);
  std::vector<std::string> lines;
  for (const Change& change : c.changes) lines.push_back(change.after.line);
  EXPECT_EQ(lines, (std::vector<std::string>{"v1 d", "v1 b", "v1 c", "v1 a"}));
}

TEST(Compare, TextSaysWhatChangedOnOneLineEach) {
  Record after = record(Verdict::fail, 2.5, "v1 a\n| b");
  after.judgement.reason = "two\nlines";
  Record before = record(Verdict::pass, 0.5, "v1 a\n| b");
  const Comparison c = of(before, after);
  const std::string text = compare_text(c);
  EXPECT_NE(text.find("1 case in common, 0 unchanged, 1 verdict worse"), std::string::npos) << text;
  EXPECT_NE(text.find("pass 0.5 -> fail 2.5"), std::string::npos) << text;
  EXPECT_NE(text.find("samestate repro 'v1 a | b'"), std::string::npos) << text;
  EXPECT_NE(text.find("two lines"), std::string::npos) << text;
  const std::string page = compare_markdown(c, "a.jsonl", "<b>.jsonl");
  EXPECT_NE(page.find("# samestate: 1 regressions"), std::string::npos) << page;
  EXPECT_EQ(page.find("<b>"), std::string::npos);
  EXPECT_NE(page.find("v1 a \\| b"), std::string::npos) << page;
}

Record wrote(const char* line, const char* kernel, const char* outputs) {
  Record made = record(Verdict::pass, 0.5, line);
  made.kernel = kernel;
  made.outputs = outputs;
  return made;
}

// Hashes on one side alone say nothing; if a case occurs twice, the last one counts.
TEST(Compare, BitsOfEachKernel) {
  const RecordFile before =
      file({wrote("v1 c", "cuda.b", "o:1 s:2"), wrote("v1 b", "cuda.b", "o:1 s:2"),
            wrote("v1 a", "cuda.b", "o:1 s:2"), wrote("v1 a", "cuda.a", "o:1"), wrote("v1 d", "cuda.b", ""),
            wrote("v1 e", "cpu.a", ""), wrote("v1 gone", "cuda.a", "o:1")});
  const RecordFile after =
      file({wrote("v1 c", "cuda.b", "o:1 s:3"), wrote("v1 a", "cuda.b", "o:9 s:2"),
            wrote("v1 b", "cuda.b", "o:7 s:2"), wrote("v1 b", "cuda.b", "o:1 s:2"),
            wrote("v1 a", "cuda.a", "o:1"), wrote("v1 d", "cuda.b", "o:4"), wrote("v1 e", "cpu.a", "")});
  const Comparison c = compare(before, after, 2.0);
  ASSERT_EQ(c.bits.size(), 2U);
  EXPECT_EQ(c.bits[0].kernel, "cuda.a");
  EXPECT_EQ(c.bits[0].cases(), 1);
  EXPECT_EQ(c.bits[0].equal, 1);
  EXPECT_EQ(c.bits[1].cases(), 3);
  EXPECT_EQ(c.bits[1].equal, 1);
  ASSERT_EQ(c.bits[1].differences.size(), 2U);
  EXPECT_EQ(c.bits[1].differences[0].after.line, "v1 c");
  EXPECT_EQ(c.bits[1].differences[0].output, "s");
  EXPECT_EQ(c.bits[1].differences[1].output, "o");
  EXPECT_EQ(c.regressions(), 0);
  const std::string text = compare_text(c);
  EXPECT_NE(text.find("1 of 3 cases wrote equal bits"), std::string::npos) << text;
  EXPECT_NE(text.find("1 of 1 case wrote equal bits"), std::string::npos) << text;
  EXPECT_LT(text.find("s differs"), text.find("o differs")) << text;
  EXPECT_NE(compare_markdown(c, "a", "b").find("| cuda.b | 3 | 1 | "), std::string::npos);
  const auto parsed = nlohmann::json::parse(compare_json(c));
  EXPECT_EQ(parsed["bits"][1]["equal"], 1);
  EXPECT_EQ(parsed["bits"][1]["differences"][0]["output"], "s");
  EXPECT_EQ(compare_text(compare(file({wrote("v1 e", "cpu.a", "")}), after, 2.0)).find("bit for bit"),
            std::string::npos);
}

TEST(Compare, JsonHoldsBothSides) {
  const auto parsed = nlohmann::json::parse(compare_json(
      of(record(Verdict::pass, 0.5), record(Verdict::fail, std::numeric_limits<double>::infinity()))));
  EXPECT_EQ(parsed["regressions"], 1);
  EXPECT_EQ(parsed["changes"][0]["kind"], "verdict worse");
  EXPECT_EQ(parsed["changes"][0]["before"]["ratio"], 0.5);
  EXPECT_EQ(parsed["changes"][0]["after"]["ratio"], "inf");
}

}  // namespace
}  // namespace samestate
