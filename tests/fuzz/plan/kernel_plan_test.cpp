#include "fuzz/plan/kernel_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <set>
#include <string>

#include "fuzz/plan/edge_cases.h"
#include "fuzz/plan/interpreted.h"
#include "fuzz/plan/ordinary_calls.h"
#include "tests/facts.h"
#include "tests/kernel_table.h"

namespace samestate {
namespace {

struct Planned {
  explicit Planned(const std::string& name, double seconds, const std::string& where = "")
      : kernel(table().row_named(name)) {
    if (!where.empty()) options.filter.where(where);
    plan = plan_of_kernel(table(), kernel, options, seconds);
    std::set<std::string> lines;
    for (const PlannedCall& call : plan.calls) lines.insert(call.line);
    for (const PlannedCase& edge : plan.edges) others += seconds_of_call(kernel, edge.c);
    for (const Turn& turn : plan.turns)
      (lines.contains(format_case(turn.planned.c)) ? calls : others) +=
          seconds_of_call(kernel, turn.planned.c);
  }

  const KernelRow& kernel;
  PlanOptions options;
  KernelPlan plan;
  double calls = 0.0, others = 0.0;  ///< seconds of ordinary calls, and of all else
};

// A filter that leaves small calls alone: as many as fit into the time by their cost would take minutes to draw.
TEST(KernelPlan, AFilterOfSmallSizesMakesNoMillionCases) {
  const Planned of("cpu.gated_delta_rule.chunked", 200.0, "T=..70 dk=..32 dv=..32 B=..2 Hv=..4");
  EXPECT_GT(of.plan.turns.size(), 5000U);
  EXPECT_LT(of.plan.turns.size(), 15000U);
}

// As Triton's interpreter: of the same row interpreted, every call is one of seconds, and there are hundreds of them.
TEST(KernelPlan, AnInterpretedKernelGetsCallsOfSeconds) {
  for (const char* name : {"cpu.gated_delta_rule.chunked", "cpu.retention.recurrent", "cpu.rms_norm.fused"}) {
    KernelRow kernel = table().row_named(name);
    kernel.interpreted = true;
    const KernelPlan plan = plan_of_kernel(table(), kernel, {}, kSecondsOfPlan);
    std::vector<Case> cases;
    for (const PlannedCase& edge : plan.edges) cases.push_back(edge.c);
    for (const Turn& turn : plan.turns) cases.push_back(turn.planned.c);
    double all = 0.0;
    for (const Case& c : cases) {
      EXPECT_LE(interpreted_seconds(kernel, c), kMostInterpreted) << format_case(c);
      all += seconds_of_call(kernel, c);
    }
    EXPECT_GE(cases.size(), 250U) << name;
    EXPECT_LE(all, 1.1 * kSecondsOfPlan) << name;
    // The planted fault: the plan of the row that is compiled has calls of minutes.
    kernel.interpreted = false;
    KernelRow interpreted = kernel;
    interpreted.interpreted = true;
    double dearest = 0.0;
    for (const Turn& turn : plan_of_kernel(table(), kernel, {}, kSecondsOfPlan).turns)
      dearest = std::max(dearest, interpreted_seconds(interpreted, turn.planned.c));
    EXPECT_GT(dearest, 5 * kMostInterpreted) << name;
  }
}

// Minutes and no hours, which a person is told before the first call.
TEST(KernelPlan, AnInterpretersMinutesAreTold) {
  KernelTable interpreted(kernels(), operator_kernels());
  interpreted.set("cpu.retention.recurrent", &KernelRow::interpreted, true);
  const KernelPlan plan =
      plan_of_kernel(interpreted, interpreted.row_named("cpu.retention.recurrent"), {}, kSecondsOfPlan);
  std::vector<Case> cases;
  for (const PlannedCase& edge : plan.edges) cases.push_back(edge.c);
  for (const Turn& turn : plan.turns) cases.push_back(turn.planned.c);
  const std::string text = interpreted_text(cases, interpreted, 2);
  int calls = 0, minutes = 0;
  ASSERT_EQ(std::sscanf(text.c_str(),
                        "an interpreter runs cpu.retention.recurrent: %d small calls, about %d minute",
                        &calls, &minutes),
            2)
      << text;
  EXPECT_EQ(calls, std::ssize(cases));
  EXPECT_LE(minutes, 30) << text;
  EXPECT_EQ(interpreted_text(cases, table(), 2), "") << "compiled kernels take no time worth a word";
}

// Sizes that a filter asks for may cost hours, which a person is told before the first call.
TEST(KernelPlan, ALongPlanIsAnnouncedWithWhatTakesLongest) {
  const std::string line = "v1 gated_delta_rule form=recurrent T=256 dk=4096";
  std::vector<Case> cases(400, parse_case("v1 gated_delta_rule form=recurrent T=64"));
  EXPECT_EQ(long_plan_text(cases, table(), 2, "smaller sizes in --where"), "");
  cases.insert(cases.begin() + 7, 100, parse_case(line));
  const std::string text = long_plan_text(cases, table(), 2, "smaller sizes in --where");
  EXPECT_EQ(lacking(text, "500 2 threads " + line + " --where --max-cases --budget"), "") << text;
  EXPECT_NE(text.find("minutes on 2 threads"), std::string::npos) << text;
  EXPECT_NE(long_plan_text(cases, table(), 1, "").find(" on 1 thread,"), std::string::npos);
  EXPECT_EQ(long_plan_text(cases, table(), 1000, ""), "") << "no case alone takes as long";
  // Wide keys make the maps of chunks dear: one such case took 100 s.
  const std::vector<Case> wide(20,
                               parse_case("v1 gated_delta_rule chunk=53 T=3 dk=12345 dv=15 state=random"));
  EXPECT_NE(long_plan_text(wide, table(), 2, "").find("23 minutes on 2 threads"), std::string::npos)
      << long_plan_text(wide, table(), 2, "");
}

// The calls that took longest in Triton 3.9 (seconds): the estimate is within a factor of four.
TEST(KernelPlan, WhatAnInterpreterTakesIsWhatWasMeasured) {
  KernelRow kernel = table().row_named("cpu.gated_delta_rule.chunked");
  kernel.interpreted = true;
  for (const auto& [line, seconds] : std::vector<std::pair<std::string, double>>{
           {"v1 gated_delta_rule chunk=32 T=512 Hk=16 Hv=48 dk=128 layout=padded", 461.8},
           {"v1 gated_delta_rule chunk=32 T=3588 Hk=16 dk=128 state=random layout=fused final=in_place",
            264.3},
           {"v1 gated_delta_rule chunk=32 B=4 T=1 Hk=32 dk=128 state=random final=in_place repeat=1", 196.4},
           {"v1 gated_delta_rule chunk=32 T=35 Hk=4 Hv=512 dk=32 dv=16 regime=tiny_norms", 51.5},
           {"v1 gated_delta_rule chunk=32 B=96 T=37 dk=8 dv=4 state=random final=in_place", 15.2},
           {"v1 gated_delta_rule chunk=32 T=33 Hk=64 dk=24 dv=8 regime=beta_two", 9.7},
           {"v1 gated_delta_rule chunk=32 T=3001 dk=16 dv=8 state=random", 7.0}}) {
    const double estimate = interpreted_seconds(kernel, parse_case(line));
    EXPECT_GT(estimate, seconds / 4) << line;
    EXPECT_LT(estimate, seconds * 4) << line;
  }
}

TEST(KernelPlan, HalfOfTheTimeGoesToOrdinaryCalls) {
  for (const char* name :
       {"cpu.gated_delta_rule.chunked", "cpu.rms_norm.fused", "cpu.gated_delta_net.chunked"}) {
    const Planned of(name, 160.0);
    EXPECT_TRUE(of.plan.coverage.whole) << name;
    EXPECT_GE(of.calls, 79.0) << name;
    EXPECT_NEAR(of.calls + of.others, 160.0, 2.0) << name;
    EXPECT_GE(of.plan.edges.size(), edge_cases_of(table(), of.kernel).size()) << name;
  }
}

// As of one kernel among all of the house's.
TEST(KernelPlan, LittleTimeThinsEdgesAndCoveringSetAlike) {
  const Planned whole("cpu.gated_delta_rule.chunked", 160.0), part("cpu.gated_delta_rule.chunked", 4.0);
  EXPECT_FALSE(part.plan.coverage.whole);
  EXPECT_LE(part.others, 2.1);
  EXPECT_GE(part.calls, 1.9);
  EXPECT_LE(part.calls + part.others, 4.6);
  EXPECT_GT(part.plan.edges.size(), 50U);
  EXPECT_LT(part.plan.edges.size(), whole.plan.edges.size());
  // The cases that are kept are in the order of the whole plan, from its first to its last quarter.
  std::vector<std::size_t> places;
  for (const PlannedCase& edge : part.plan.edges)
    places.push_back(static_cast<std::size_t>(std::ranges::find(whole.plan.edges, edge.c, &PlannedCase::c) -
                                              whole.plan.edges.begin()));
  EXPECT_TRUE(std::ranges::is_sorted(places));
  EXPECT_LT(places.front(), whole.plan.edges.size() / 4);
  EXPECT_GT(places.back(), whole.plan.edges.size() * 3 / 4);
  // A pair of model and kind whose turn did not come says so.
  EXPECT_TRUE(std::ranges::any_of(part.plan.calls, [](const PlannedCall& call) {
    return call.why.find("--effort") != std::string_view::npos;
  }));
}

// FINDINGS' three bugs at sizes that no plan had: what a filter asks for is made.
TEST(KernelPlan, AFilterMakesTheCasesThatItAsksFor) {
  for (const auto& [name, where] : {std::pair{"cpu.expert_router.logits_first", "N=128 K=8 T=77"},
                                    {"cpu.rms_norm.fused", "D=7168 T=613"},
                                    {"cpu.rotary_embedding.full_width", "T=10241 d=256 pairs=32"},
                                    {"cpu.gated_delta_rule.chunked", "T=1000..1100 dk=128 dv=128"}}) {
    const Planned of(name, 40.0, where);
    EXPECT_GE(of.plan.turns.size(), 20U) << where;
    for (const Turn& turn : of.plan.turns)
      EXPECT_TRUE(of.options.filter.takes(turn.planned.c, name)) << format_case(turn.planned.c);
    EXPECT_GT(of.calls, 0.0) << where;
  }
}

TEST(KernelPlan, WhatAFilterAsksForAndNoKernelTakesIsNotMade) {
  const Planned of("cpu.expert_router.logits_first", 10.0, "N=2 K=8");
  EXPECT_TRUE(of.plan.edges.empty() && of.plan.turns.empty());
}

TEST(KernelPlan, IsAFunctionOfItsArguments) {
  const Planned a("cpu.selective_scan.chunked", 30.0), b("cpu.selective_scan.chunked", 30.0);
  ASSERT_EQ(a.plan.turns.size(), b.plan.turns.size());
  for (std::size_t i = 0; i < a.plan.turns.size(); ++i)
    EXPECT_EQ(a.plan.turns[i].planned.c, b.plan.turns[i].planned.c);
}

}  // namespace
}  // namespace samestate
