#include "fuzz/plan/call_coverage.h"

#include <gtest/gtest.h>

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

TEST_F(Calls, APlanWithoutThemSaysNothing) { EXPECT_EQ(CallCoverage(Plan{}).text(3), ""); }

}  // namespace
}  // namespace samestate
