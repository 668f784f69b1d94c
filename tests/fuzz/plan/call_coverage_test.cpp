#include "fuzz/plan/call_coverage.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "fuzz/plan/ordinary_calls.h"

namespace samestate {
namespace {

class Calls : public testing::Test {
 protected:
  Calls() {
    const KernelRow* kernel = &table_.row_named("cpu.retention.chunked");
    plan_.calls = {{"line a", kernel, "RetNet-1.3B", "prefill", false, {}},
                   {"line b", kernel, "RetNet-1.3B", "prefill", true, {}},
                   {"line c", kernel, "RetNet-6.7B", "prefill", false, {}},
                   {"", kernel, "RetNet-6.7B", "resume", false, "left to a larger --effort"},
                   {"", kernel, "RetNet-6.7B", "verify", false, kNoSuchCall}};
  }

  KernelTable table_{kernels(), operator_kernels()};
  Plan plan_;
};

TEST_F(Calls, CountsWhatWasJudgedAndSaysWhatWasNot) {
  CallCoverage of(plan_);
  of.add("line a", "cpu.retention.chunked");
  of.add("line b", "cpu.retention.chunked");
  of.add("line c", "cpu.retention.recurrent");  // another kernel's
  of.add("line d", "cpu.retention.chunked");    // no ordinary call
  const std::string text = of.text(5);
  EXPECT_NE(text.find("2 judged, 1 of them"), std::string::npos) << text;
  EXPECT_NE(text.find("1 of 3 pairs"), std::string::npos) << text;  // what the system has no calls of is none
  EXPECT_NE(text.find("resume of RetNet-6.7B"), std::string::npos) << text;
  EXPECT_NE(text.find("--effort"), std::string::npos) << text;
  EXPECT_EQ(text.find("verify"), std::string::npos) << text;
  EXPECT_NE(of.text(1).find("--coverage FILE"), std::string::npos);
  const auto rows = nlohmann::json::parse(of.json());
  ASSERT_EQ(rows.size(), 4U);
  EXPECT_EQ(rows[0]["judged"], 2);
  EXPECT_EQ(rows[0]["whole"], 1);
}

// A user who asked for few cases is told that this is why a call was not judged.
TEST_F(Calls, WhatMaxCasesLeftOutIsNotCalledVacuous) {
  plan_.total = 379, plan_.thinned_to = 4;
  plan_.calls[0].left_out = plan_.calls[1].left_out = true;
  const std::string text = CallCoverage(plan_).text(5);
  EXPECT_NE(text.find("prefill of RetNet-1.3B on cpu.retention.chunked: left out by --max-cases (4 of 379"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("prefill of RetNet-6.7B on cpu.retention.chunked: planned, but vacuous"),
            std::string::npos)
      << text;
  EXPECT_NE(CallCoverage(plan_).json().find("left out by --max-cases (4 of 379"), std::string::npos);
}

TEST_F(Calls, APlanMarksTheCallsThatItLeavesOut) {
  PlanOptions options;
  options.kernel = "cpu.retention.chunked", options.max_cases = 4;
  const Plan plan = plan_of(table_, options);
  EXPECT_EQ(plan.thinned_to, 4);
  EXPECT_GT(plan.total, 100);
  const auto left_out = std::ranges::count_if(plan.calls, &PlannedCall::left_out);
  EXPECT_GE(left_out, std::ranges::count_if(plan.calls, [](const PlannedCall& call) {
                        return !call.line.empty();
                      }) - 4);
  options.max_cases = 0;
  EXPECT_EQ(std::ranges::count_if(plan_of(table_, options).calls, &PlannedCall::left_out), 0);
}

TEST_F(Calls, APlanWithoutThemSaysNothing) { EXPECT_EQ(CallCoverage(Plan{}).text(3), ""); }

}  // namespace
}  // namespace samestate
