#include "fuzz/plan/ordinary_calls.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "fuzz/plan/plan.h"
#include "harness/cases/case_filter.h"
#include "harness/cases/counter.h"
#include "harness/cases/keys.h"
#include "tests/kernel_table.h"

namespace samestate {
namespace {

struct Condition {
  std::string kernel, text;
};

std::vector<Condition> served_conditions() {
  std::ifstream in(SAMESTATE_SOURCE_DIR "/tests/fuzz/plan/served_conditions.txt");
  std::vector<Condition> out;
  for (std::string line; std::getline(in, line);) {
    const std::size_t colon = line.find(": ");
    if (line.empty() || line.front() == '#' || colon == std::string::npos) continue;
    out.push_back({line.substr(0, colon), line.substr(colon + 2)});
  }
  return out;
}

/// The conditions that no case of a default gate of one kernel meets.
std::vector<std::string> not_met(const std::vector<Condition>& conditions) {
  std::map<std::string, std::vector<Case>> plans;
  std::vector<std::string> out;
  for (const Condition& condition : conditions) {
    auto [plan, fresh] = plans.try_emplace(condition.kernel);
    if (fresh) {
      PlanOptions options;
      options.kernel = condition.kernel;
      plan->second = plan_cases(table(), options);
    }
    CaseFilter filter;
    filter.where(condition.text);
    if (std::ranges::none_of(plan->second, [&](const Case& c) { return filter.takes(c, condition.kernel); }))
      out.push_back(condition.kernel + ": " + condition.text);
  }
  return out;
}

// The conditions describe calls of servers and trainers, and no faults. A default gate may leave one in fifty of them unmet.
TEST(OrdinaryCalls, DefaultGateMeetsTheCallsOfServersAndTrainers) {
  const std::vector<Condition> conditions = served_conditions();
  ASSERT_GE(conditions.size(), 90U);
  const std::vector<std::string> missing = not_met(conditions);
  EXPECT_LE(50 * missing.size(), conditions.size()) << fmt::format("{}", fmt::join(missing, "\n"));
}

// A call that no program makes is met by none, so that the count above is not one of everything.
TEST(OrdinaryCalls, WhatNoProgramAsksForIsNotMet) {
  EXPECT_EQ(not_met({{"cpu.gated_delta_rule.chunked", "dk=127 dv=3 T=4001.. Hv=31"}}).size(), 1U);
}

TEST(OrdinaryCalls, EachCallIsOneOfItsKindAndAffordable) {
  for (const KernelRow& kernel : table().all()) {
    if (kernel.device != "cpu") continue;
    const OrdinaryCalls source(kernel);
    const Counter counter(7, kernel.name);
    std::set<std::string_view> kinds;
    int calls = 0, dear = 0;
    for (Index i = 0; i < std::min<Index>(source.round(), 40); ++i) {
      std::int64_t draw = 0;
      const OrdinaryCall call = source.draw(i, {[&](std::int64_t n) {
                                              return counter.below({i, draw++, 0, 0}, n);
                                            }});
      if (call.c.system.empty()) {
        EXPECT_FALSE(call.why.empty());
        continue;
      }
      kinds.insert(call.kind);
      const std::string line = format_case(call.c);
      EXPECT_TRUE(possible(call.c)) << line;
      EXPECT_TRUE(within_limits(kernel, call.c)) << kernel.name << " " << line;
      EXPECT_LE(seconds_of_call(kernel, call.c), kSecondsOfDearCall) << line;
      ++calls, dear += seconds_of_call(kernel, call.c) > kSecondsOfCall;
      EXPECT_EQ(parse_case(line), call.c) << line;
      if (call.c.law.empty()) {
        if (call.kind == "decode one") {
          EXPECT_EQ(call.c.B, 1) << line;
        }
        if (call.kind == "verify") {
          EXPECT_GE(call.c.T, 2) << line;
        }
        if (call.kind == "packed batch" && kernel.system->has_key("dk")) {
          EXPECT_GE(call.c.lengths.size(), 2U) << line;
        }
      }
    }
    EXPECT_LE(4 * dear, calls + 4) << kernel.name;
    if (source.models() > 0) {
      EXPECT_GE(kinds.size(), 3U) << kernel.name;
    }
  }
}

// Every system has a layer of some model that contains it, or says here that no public model does.
TEST(OrdinaryCalls, EverySystemIsPartOfAModel) {
  for (const System* system : systems()) EXPECT_FALSE(model_sizes(*system).empty()) << system->name;
}

}  // namespace
}  // namespace samestate
