#include "fuzz/plan/never_judged.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "harness/cases/keys.h"
#include "harness/run/run_case.h"
#include "optimized/operator_kernel.h"

namespace samestate {
namespace {

// Each row's example shows nothing on any kernel that the row is of, whatever the seed.
TEST(NeverJudged, EachRowIsVacuousOnEachKernelThatItIsOf) {
  const KernelTable table(kernels(), operator_kernels());
  for (const NeverJudged& row : never_judged()) {
    EXPECT_FALSE(row.reason.empty());
    int kernels_of = 0;
    for (const KernelRow& kernel : table.all()) {
      if (kernel.device != "cpu") continue;
      const std::string name(kernel.system->name);
      if (!row.systems.empty() && row.systems.find(name) == row.systems.npos) continue;
      Case c = with_keys(kernel.system->standard(), row.example);
      c.form = kernel.form;
      if (!possible(c) || never_judged(*kernel.system, c) != &row) continue;
      ++kernels_of;
      for (const std::uint64_t seed : {1U, 2U, 3U}) {
        c.seed = seed;
        c.kernel = kernel.name;
        const Record record = run_case(c, table);
        EXPECT_FALSE(is_judged(record.judgement.verdict)) << record.line << ": " << row.reason;
      }
    }
    EXPECT_GT(kernels_of, 0) << row.example;
  }
}

TEST(NeverJudged, WhatCarriesAStateIsJudgedWithoutTokens) {
  Case c = system_named("gated_delta_rule").standard();
  c.T = 0;
  EXPECT_EQ(never_judged(system_named("gated_delta_rule"), c), nullptr);
  c = system_named("rms_norm").standard();
  EXPECT_EQ(never_judged(system_named("rms_norm"), c), nullptr);
  c.T = 0;
  EXPECT_NE(never_judged(system_named("rms_norm"), c), nullptr);
}

}  // namespace
}  // namespace samestate
