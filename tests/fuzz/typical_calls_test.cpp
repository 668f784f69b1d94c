#include "fuzz/typical_calls.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>

#include "fuzz/factors.h"
#include "harness/cases/keys.h"
#include "optimized/operator_kernel.h"

namespace samestate {
namespace {

const KernelTable& table() {
  static const KernelTable kTable(kernels(), operator_kernels());
  return kTable;
}

// An adversary's bug that survived: a step without l2norm, one token of heads of 128.
TEST(TypicalCalls, OneTokenOfAModelMeetsEachSetting) {
  const KernelRow& step = table().row_named("cpu.gated_delta_step.expanded");
  const std::vector<Case> cases = calls_of_one_token(step, start_of(step));
  for (const Index normalises : {0, 1}) {
    EXPECT_TRUE(std::ranges::any_of(cases, [&](const Case& c) {
      return c.T == 1 && size_in(c, "dk") == 128 && size_in(c, "l2norm") == normalises;
    })) << normalises;
  }
  for (const KernelRow& kernel : table().all()) {
    for (const Case& c : calls_of_one_token(kernel, start_of(kernel))) {
      EXPECT_TRUE(possible(c) && within_limits(kernel, c)) << format_case(c);
      EXPECT_LE(work_of(kernel, c), 1.6) << format_case(c);
    }
  }
}

// Conditions of an adversary's bugs that no case of the plan met, each of things that are ordinary alone.
TEST(TypicalCalls, MeetWhatIsOrdinaryTogether) {
  struct Row {
    const char* kernel;
    std::function<bool(const Case&)> met;
  };
  const auto whole_chunks = [](const Case& c) {
    return c.form != "decode" && c.lengths.empty() && c.chunk >= 16 && c.T >= 2 * c.chunk &&
           c.T % c.chunk == 0 && c.B > 1;
  };
  const Row rows[] = {
      {"cpu.gated_delta_rule.chunked",
       [&](const Case& c) { return whole_chunks(c) && c.Hv > c.Hk && c.Hk > 1; }},
      {"cpu.retention.chunked", [&](const Case& c) { return whole_chunks(c) && c.chunk == 64 && c.Hv > 1; }},
      {"cpu.linear_attention.chunked",
       [](const Case& c) {
         return c.lengths.size() >= 2 && c.Hv > 1 &&
                std::ranges::count_if(c.lengths, [&](Index n) { return n > 0 && n % c.chunk == 0; }) >= 2;
       }},
      {"cpu.state_space_duality.chunked", whole_chunks},
      {"cpu.selective_scan.chunked", whole_chunks},
      {"cpu.gated_delta_net.chunked", [&](const Case& c) { return whole_chunks(c) && size_in(c, "Hk") > 1; }},
      {"cpu.multi_scale_retention.chunked", whole_chunks},
      {"cpu.normalised_retention.chunked", whole_chunks},
      {"cpu.softmax_attention.online",
       [](const Case& c) {
         return c.form == "decode" && c.T % 64 == 0 && size_in(c, "H") >= 2 * size_in(c, "Hkv");
       }},
      {"cpu.qwen3_next_moe.sorted", [](const Case& c) { return c.B > 1 && c.T > 64 && size_in(c, "K") > 1; }},
  };
  for (const Row& row : rows) {
    const KernelRow& kernel = table().row_named(row.kernel);
    const std::vector<Case> cases = typical_calls(kernel, start_of(kernel));
    EXPECT_TRUE(std::ranges::any_of(cases, row.met)) << row.kernel;
  }
}

// A row declared a limit of its neighbours', by which its own form was drawn in no case.
TEST(TypicalCalls, EveryRowTakesTheCaseThatItsPlanBeginsWith) {
  for (const KernelRow& kernel : table().all())
    EXPECT_TRUE(within_limits(kernel, start_of(kernel))) << kernel.name << ": " << kernel.limits.text();
}

TEST(TypicalCalls, AreCasesOfLittleWorkAndAlwaysTheSame) {
  for (const KernelRow& kernel : table().all()) {
    const std::vector<Case> cases = typical_calls(kernel, start_of(kernel));
    EXPECT_EQ(cases.empty(), over_ranks(kernel)) << kernel.name;
    for (const Case& c : cases) {
      EXPECT_TRUE(possible(c) && within_limits(kernel, c)) << format_case(c);
      EXPECT_LE(work_of(kernel, c), 0.7) << format_case(c);
    }
    const std::vector<Case> again = typical_calls(kernel, start_of(kernel));
    EXPECT_TRUE(std::ranges::equal(cases, again, {}, format_case, format_case)) << kernel.name;
  }
}

}  // namespace
}  // namespace samestate
