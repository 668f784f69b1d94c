#include "reports/records/failure_groups.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "oracles/reasons.h"
#include "reports/records/summary.h"
#include "tests/reports/records.h"

namespace samestate {
namespace {

using testing::record;

TEST(FailureGroups, BitsThatDifferBetweenDevicesAreOneKindWhateverTheyAre) {
  std::vector<Record> records;
  for (const char* hash : {"0f", "a1", "bb"}) {
    records.push_back(record(Verdict::fail, 1.0, "v1 a T=" + std::to_string(records.size() + 1)));
    records.back().judgement.gate = kBetweenDevices;
    records.back().judgement.reason =
        std::string("o has other bits on another device, which passes too: hash ") + hash + " on device 0: A";
  }
  const std::vector<FailureGroup> groups = failure_groups(records);
  ASSERT_EQ(groups.size(), 1U);
  EXPECT_EQ(groups[0].cause, "o has other bits on another device, which passes too");
}

TEST(FailureGroups, OneAKernelFormLawAndCauseWithTheFewestElementsAsItsExample) {
  std::vector<Record> records;
  for (int i = 0; i < 5; ++i)
    records.push_back(record(Verdict::fail, 2.0 + i,
                             "v1 a l2norm=1 T=" + std::to_string(i + 1) + (i == 3 ? " B=1" : " B=8")));
  for (int i = 0; i < 4; ++i)
    records.push_back(record(Verdict::pass, 0.5, "v1 a T=" + std::to_string(i + 1) + " B=8"));
  records.push_back(record(Verdict::fail, 9.0, "v1 a T=9"));
  records.back().law = "split";
  records.push_back(record(Verdict::crash, 0.0, "v1 a T=9"));
  records.back().judgement.reason = "signal 11 at 0x7f";
  records.push_back(record(Verdict::crash, 0.0, "v1 a T=10"));
  records.back().judgement.reason = "signal 11 at 0x8f";
  const std::vector<FailureGroup> groups = failure_groups(records);
  ASSERT_EQ(groups.size(), 3U);
  EXPECT_EQ(groups[0].cases, 2) << "reasons that differ in numbers alone are one: " << groups[0].cause;
  EXPECT_EQ(groups[1].cases, 5);
  EXPECT_EQ(groups[1].example, 3U);
  EXPECT_EQ(groups[1].only, "l2norm=1");
  EXPECT_EQ(groups[1].largest, 6.0);
  EXPECT_EQ(groups[2].law, "split");
  EXPECT_EQ(
      group_line(groups[1]),
      "5 of cpu.gated_delta_rule.chunked, form chunked: o has more error than the contract's roundings make "
      "(only with l2norm=1)");
}

// A pass that is a failure beside its baseline is not blamed on roundings.
TEST(FailureGroups, ARatioThatGrewIsSaidToHaveGrown) {
  std::vector<Record> records{record(Verdict::fail, 0.4, "v1 a T=1")};
  records.back().judgement.reason =
      "within the bound, but the ratio was 0.1 in the baseline and may grow by 2";
  EXPECT_NE(group_line(failure_groups(records).at(0)).find("the ratio grew since the baseline"),
            std::string::npos);
}

// A key that a passing case has too is not a cause. The text after a stage's reason belongs to the whole, and
// does not make a kind of its own.
TEST(FailureGroups, AStageIsPartOfTheCause) {
  std::vector<Record> records;
  for (const std::string_view behind : {std::string_view(), kOnlyInStage}) {
    records.push_back(record(Verdict::fail, 3.0));
    Judgement& j = records.back().judgement;
    j.gate = "element";
    j.stage = "norm of q";
    j.reason = "stage norm of q: output q" + std::string(behind);
  }
  const std::vector<FailureGroup> groups = failure_groups(records);
  ASSERT_EQ(groups.size(), 1U);
  EXPECT_EQ(groups[0].cause,
            "stage norm of q: output q is beyond its worst case: no rounding of the contract explains it");
  std::string line = judgement_line(records[1].judgement);
  EXPECT_NE(line.find("ratio 3 (element of stage norm of q)"), line.npos) << line;
  EXPECT_NE(line.find("head 2, token 17, channel 3"), line.npos) << line;
  records[1].judgement.worst.head = -1;  // of whose columns no heads are known
  line = judgement_line(records[1].judgement);
  EXPECT_NE(line.find("row 17, column 3"), line.npos) << line;
  Judgement whole = records[0].judgement;
  whole.stage.clear();
  whole.reason = "output y" + std::string(kInNoStage);
  EXPECT_EQ(likely_cause(whole),
            "output y is beyond its worst case: no rounding of the contract explains it");
}

// Whose cause is known by name comes first, and memory before it.
TEST(FailureGroups, KnownMutantsHeadTheKindsOfTheirVerdict) {
  std::vector<Record> records;
  const auto add = [&](const char* gate, const char* looks_like, int cases) {
    for (int i = 0; i < cases; ++i) {
      records.push_back(record(Verdict::fail, 2.0, "v1 a T=" + std::to_string(5 + i)));
      records.back().judgement.gate = gate;
      if (i == 0) records.back().looks_like = looks_like;
    }
  };
  add("row", "only with final=in_place", 9);
  add("state", "no delta term (mutant no_delta_term.a.chunked)", 2);
  add("memory", "", 1);
  const std::vector<FailureGroup> groups = failure_groups(records);
  ASSERT_EQ(groups.size(), 3U);
  EXPECT_EQ(groups[0].cases, 1);
  EXPECT_EQ(groups[1].cases, 2) << "fewer cases, and a cause with a name";
  EXPECT_EQ(groups[2].cases, 9);
}

TEST(FailureGroups, WhatAPassHasTooIsNotNamed) {
  std::vector<Record> records;
  for (int i = 0; i < 4; ++i) records.push_back(record(Verdict::fail, 2.0, "v1 a l2norm=1"));
  for (int i = 0; i < 4; ++i)
    records.push_back(record(Verdict::pass, 0.5, i == 2 ? "v1 a l2norm=1" : "v1 a"));
  EXPECT_EQ(failure_groups(records).front().only, "");
}

// A case with fewer settings is not a smaller case: the default sizes and a length of 65537 are in the
// shortest lines.
TEST(FailureGroups, TheExampleIsSmallThenShort) {
  const auto example = [](const std::vector<std::string>& lines) {
    std::vector<Record> records;
    for (const std::string& line : lines) records.push_back(record(Verdict::fail, 2.0, line));
    const std::vector<FailureGroup> groups = failure_groups(records);
    EXPECT_EQ(groups.size(), 1U);
    return groups.front().example;
  };
  EXPECT_EQ(example({"v1 a T=65537", "v1 a l2norm=1 T=5 regime=slow", "v1 a"}), 1U);
  EXPECT_EQ(example({"v1 a", "v1 a T=64 dk=8 regime=slow"}), 1U)
      << "dk and dv are 64 where they are not named";
  EXPECT_EQ(example({"v1 a lengths=100,100,1 dk=8", "v1 a T=65 dk=8 layout=padded"}), 1U);
  EXPECT_EQ(example({"v1 a T=9 layout=padded", "v1 a T=9 seed=0x7"}), 1U);
}

// If a kernel keeps something from call to call, the example is one that its command shows, and the cases
// before it do not make a kind.
TEST(FailureGroups, WhatRanBeforeIsNoPartOfTheKind) {
  std::vector<Record> records{record(Verdict::fail, 2.0, "v1 a T=5"), record(Verdict::fail, 2.0, "v1 a T=65"),
                              record(Verdict::fail, 2.0, "v1 a T=66"),
                              record(Verdict::fail, 2.0, "v1 a T=6")};
  for (Record& r : records) r.judgement.gate = "element", r.judgement.reason = "output o: too far";
  records[0].judgement.reason += "; seen in a process that had run 9 case(s) before it; not run again";
  for (const std::size_t i : {2, 3}) {
    records[i].judgement.reason =
        "only after 1 other case(s) in one process, of the " + std::to_string(10 * i) +
        " that ran before it; alone: pass. The kernel keeps something from call to call: output o: too far";
  }
  const std::vector<FailureGroup> groups = failure_groups(records);
  ASSERT_EQ(groups.size(), 2U);
  for (const FailureGroup& group : groups) {
    EXPECT_EQ(group.cases, 2);
    const bool after = group.cause.starts_with("only after other cases in one process: output o is beyond");
    EXPECT_EQ(group.example, after ? 3U : 1U) << group.cause;
  }
}

// Not each failure of a kind is repeated with another setting of its tuners; the example is one that was.
TEST(FailureGroups, WhatAnotherTuningGaveIsNoPartOfTheKind) {
  std::vector<Record> records{record(Verdict::crash, 0.0, "v1 a T=5"),
                              record(Verdict::crash, 0.0, "v1 a T=6"),
                              record(Verdict::crash, 0.0, "v1 a T=65")};
  for (Record& r : records) r.judgement.reason = "the kernel threw: no";
  for (const std::size_t i : {1, 2}) {
    records[i].retuned = "full: pass: scan: BLOCK=64";
    records[i].judgement.reason +=
        "; with --autotune full it passes (scan: BLOCK=64), with first it crashes (..)";
  }
  const std::vector<FailureGroup> groups = failure_groups(records);
  ASSERT_EQ(groups.size(), 1U);
  EXPECT_EQ(groups[0].cause, "crash: the kernel threw: no");
  EXPECT_EQ(groups[0].example, 1U);
  // A failure may have no other reason than that sentence.
  Record alone = record(Verdict::fail, 2.0, "v1 a T=5"), plain = alone;
  alone.judgement.reason = "with --autotune full it passes (scan: BLOCK=64), with first it fails (..)";
  EXPECT_EQ(likely_cause(alone.judgement), likely_cause(plain.judgement));
}

TEST(FailureGroups, CausesReadWellWithoutTheirNumbers) {
  const auto cause = [](Verdict verdict, const char* gate, const std::string& reason) {
    Judgement j;
    j.verdict = verdict;
    j.gate = gate;
    j.reason = reason;
    return likely_cause(j);
  };
  EXPECT_EQ(
      cause(Verdict::fail, "law", "the two runs differ by 1.25e-05, more than the sum of their bounds 3"),
      "o: the two runs differ by more than the sum of their bounds");
  EXPECT_EQ(cause(Verdict::fail, "law",
                  "final state: the two runs differ by inf, more than the sum of their bounds 3e-7"),
            "final state: the two runs differ by more than the sum of their bounds");
  EXPECT_EQ(cause(Verdict::timeout, "", "no answer after 0.4 s (--timeout)"),
            "timeout: no answer in time (--timeout)");
  EXPECT_EQ(
      cause(Verdict::crash, "signal", "the kernel's process was killed by signal 11 (Segmentation fault)"),
      "crash: the kernel's process was killed by signal 11 (Segmentation fault)");
  EXPECT_EQ(cause(Verdict::crash, "exit", "the kernel ended its process with code 3"),
            "crash: the kernel ended its process with code 3");
  EXPECT_EQ(cause(Verdict::fail, "memory", "bf16 at -2.5 of o"), "bf16 at N of o");
}

TEST(FailureGroups, CausesTellGatesApart) {
  const auto cause = [](const char* gate, double hard, const char* reason = "because") {
    Judgement j;
    j.verdict = Verdict::fail;
    j.gate = gate;
    j.hard_ratio = hard;
    j.reason = reason;
    return likely_cause(j);
  };
  EXPECT_EQ(cause("row", 0.5), cause("head", 0.9));
  EXPECT_NE(cause("row", 0.5), cause("row", 1.5));
  EXPECT_EQ(cause("segment row", 1.5), cause("hard", 2.5));
  EXPECT_NE(cause("state", 0.5), cause("row", 0.5));
  EXPECT_NE(cause("exact", 0.0), cause("exact state", 0.0));
  EXPECT_NE(cause("element", 2.0, "output o"), cause("element", 2.0, "output S"));
  EXPECT_NE(
      cause("twin", 0.0, "differs: RMS 1.2: a rounding that the contract does not declare").find("declare"),
      std::string::npos);
  EXPECT_EQ(cause("twin", 0.0, "differs: a rounding"), cause("twin median", 0.0, "differs: a rounding"));
}

}  // namespace
}  // namespace samestate
