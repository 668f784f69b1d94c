/// Tests when a gate without failures is not a pass.
#include "cli/gate_verdict.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "cli/commands.h"

namespace samestate::cli {
namespace {

GateResult result_of(int passed, int vacuous) {
  GateResult result;
  for (int i = 0; i < passed + vacuous; ++i) {
    Record record;
    record.kernel = "mine";
    record.judgement.verdict = i < passed ? Verdict::pass : Verdict::vacuous;
    result.records.push_back(record);
    result.numbers.push_back(i);
  }
  return result;
}

int exit_of(const GateResult& result, std::string& why) {
  std::vector<std::string> remarks;
  const int exit = gate_verdict(result, remarks);
  why = remarks.empty() ? "" : remarks.front();
  return exit;
}

TEST(GateVerdict, OneOfTwentyVacuousIsTheMost) {
  std::string why;
  EXPECT_EQ(exit_of(result_of(95, 5), why), kPass);
  EXPECT_EQ(exit_of(result_of(94, 6), why), kVacuous);
  EXPECT_NE(why.find("6 of 100 cases"), std::string::npos) << why;
  EXPECT_EQ(exit_of(result_of(0, 6), why), kVacuous);
  EXPECT_EQ(exit_of(result_of(10, 3), why), kPass) << "of 13 cases a share says nothing";
}

// The number of cases that a seed draws where the bound is loose says nothing about what was judged.
TEST(GateVerdict, WhatWasJudgedElsewhereIsNotMissed) {
  std::string why;
  GateResult result = result_of(90, 10);
  result.pairs = CoverageCount{1000, 940, 55};
  EXPECT_EQ(exit_of(result, why), kPass) << why;
  result.pairs = CoverageCount{1000, 940, 40};
  EXPECT_EQ(exit_of(result, why), kVacuous);
  // A pair may be covered by the smallest cases alone, so it is no excuse for a bound that says nothing about
  // many others.
  GateResult loose = result_of(89, 11);
  loose.pairs = CoverageCount{1000, 1000, 0};
  EXPECT_EQ(exit_of(loose, why), kVacuous);
  EXPECT_NE(why.find("more than 10 %"), std::string::npos) << why;
  result.records.front().judgement.verdict = Verdict::fail;
  EXPECT_EQ(exit_of(result, why), kFail);
}

}  // namespace
}  // namespace samestate::cli
