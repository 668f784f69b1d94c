#include "reports/records/failure_groups.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/reports/records.h"

namespace samestate {
namespace {

using testing::record;

TEST(FailureGroups, OneAKernelFormLawAndCauseWithTheFewestSettingsAsItsExample) {
  std::vector<Record> records;
  for (int i = 0; i < 5; ++i)
    records.push_back(
        record(Verdict::fail, 2.0 + i, "v1 a l2norm=1 T=" + std::to_string(i) + (i == 3 ? "" : " B=2")));
  for (int i = 0; i < 4; ++i) records.push_back(record(Verdict::pass, 0.5, "v1 a T=" + std::to_string(i)));
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

// A key that a case which passed has is no cause.
TEST(FailureGroups, WhatAPassHasTooIsNotNamed) {
  std::vector<Record> records;
  for (int i = 0; i < 4; ++i) records.push_back(record(Verdict::fail, 2.0, "v1 a l2norm=1"));
  for (int i = 0; i < 4; ++i)
    records.push_back(record(Verdict::pass, 0.5, i == 2 ? "v1 a l2norm=1" : "v1 a"));
  EXPECT_EQ(failure_groups(records).front().only, "");
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
}

}  // namespace
}  // namespace samestate
