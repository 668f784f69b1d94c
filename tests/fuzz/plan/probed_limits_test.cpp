#include "fuzz/plan/probed_limits.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "harness/cases/declared_limits.h"
#include "harness/records/record.h"
#include "optimized/kernel.h"

namespace samestate {
namespace {

constexpr const char* kProbedName = "mine.gated_delta_rule.chunked";

/// The findings of a kernel that declares these limits and refuses every call for which `refuses` is true.
ProbedLimits probed(const std::function<bool(const Case&)>& refuses,
                    const std::vector<std::string>& declared = {}, const std::function<bool()>& stop = {}) {
  Kernel row = KernelTable(kernels()).named("cpu.gated_delta_rule.chunked");
  row.name = kProbedName, row.contracts = {"fp32", "bf16", "fp16"}, row.limits = declared;
  KernelTable table(kernels());
  table.add(std::vector<Kernel>{row});
  table.converts(kProbedName, false, {}, {});
  const KernelRow& own = table.row_named(kProbedName);
  return probe_limits(
      own,
      [&](const Case& c) {
        EXPECT_TRUE(own.limits.hold(c)) << format_case(c);
        CaseResult result;
        result.judgement.verdict = refuses(c) ? Verdict::crash : Verdict::pass;
        if (refuses(c)) result.judgement.gate = kRefusal, result.judgement.reason = "the kernel threw: no";
        return result;
      },
      stop);
}

std::vector<std::string> sorted(std::vector<std::string> texts) {
  std::ranges::sort(texts);
  return texts;
}

TEST(ProbedLimits, OneSizeOrSettingThatIsRefusedIsALimit) {
  const std::vector<std::pair<std::function<bool(const Case&)>, std::vector<std::string>>> planted = {
      {[](const Case& c) { return c.dk != 128; }, {"dk = 128"}},
      {[](const Case& c) { return c.dk > 128; }, {"dk <= 128"}},
      {[](const Case& c) { return c.dv % 16 != 0; }, {"dv % 16 = 0"}},
      {[](const Case& c) { return c.T % 16 != 0; }, {"T % 16 = 0"}},
      {[](const Case& c) { return c.B != 1; }, {"B = 1"}},
      {[](const Case& c) { return c.Hv != c.Hk; }, {"Hk = Hv"}},
      {[](const Case& c) { return c.contract == "fp32"; }, {"contract in bf16 fp16"}},
      {[](const Case& c) { return c.state == "none"; }, {"state = random"}},
      {[](const Case& c) { return c.form == "packed"; }, {"form = chunked"}},
      {[](const Case& c) { return c.l2norm; }, {"l2norm = 0"}},
      {[](const Case& c) { return c.chunk != 64; }, {"chunk = 64"}}};
  for (const auto& [refuses, limits] : planted) {
    const ProbedLimits found = probed(refuses);
    EXPECT_EQ(found.limits, limits) << limits.front();
    EXPECT_EQ(found.refusal, "the kernel threw: no") << limits.front();
    EXPECT_EQ(found.by_values, "") << limits.front();
  }
}

TEST(ProbedLimits, SeveralAtOnce) {
  // As FlashInfer's prefill: dk = dv = 128, 16 bit, as many heads of each kind.
  const ProbedLimits found = probed([](const Case& c) {
    return c.dk != 128 || c.dv != 128 || c.contract == "fp32" || c.T % 16 != 0 || c.Hk != c.Hv;
  });
  EXPECT_EQ(sorted(found.limits), (std::vector<std::string>{"Hk = Hv", "T % 16 = 0", "contract in bf16 fp16",
                                                            "dk = 128", "dv = 128"}));
}

TEST(ProbedLimits, SizesThatMustBeEqualAreNoSizeOfTheirOwn) {
  EXPECT_EQ(probed([](const Case& c) { return c.dk != c.dv; }).limits, std::vector<std::string>{"dk = dv"});
}

TEST(ProbedLimits, WhatIsRefusedByItsValuesIsNoLimit) {
  // Half of the seeds, whatever the sizes.
  const ProbedLimits by_seed = probed([](const Case& c) { return c.seed % 2 == 0; });
  EXPECT_TRUE(by_seed.limits.empty());
  EXPECT_EQ(by_seed.by_values, "the kernel threw: no");
  EXPECT_EQ(by_seed.refusal, "");
  // A value above what it takes is in all data of large calls, but for a calm regime.
  const ProbedLimits by_regime = probed([](const Case& c) { return c.T >= 128 && c.regime == "normal"; });
  EXPECT_TRUE(by_regime.limits.empty());
  EXPECT_EQ(by_regime.by_values, "the kernel threw: no");
  // There is also a size that is a limit, which is still found.
  const ProbedLimits both = probed([](const Case& c) { return c.seed % 2 == 0 || c.dk > 128; });
  EXPECT_EQ(both.limits, std::vector<std::string>{"dk <= 128"});
}

TEST(ProbedLimits, DeclaredOnesAreKeptAndNotFoundAgain) {
  const ProbedLimits found =
      probed([](const Case& c) { return c.dv != 64; }, {"dk = 128", "form != packed", "contract = bf16"});
  EXPECT_EQ(found.limits, std::vector<std::string>{"dv = 64"});
}

TEST(ProbedLimits, NothingIsFoundOfAKernelThatTakesEverythingOrNothing) {
  const ProbedLimits all = probed([](const Case&) { return false; });
  EXPECT_TRUE(all.limits.empty());
  EXPECT_EQ(all.refused, 0);
  EXPECT_TRUE(all.took_any);
  const ProbedLimits none = probed([](const Case&) { return true; });
  EXPECT_TRUE(none.limits.empty());
  EXPECT_FALSE(none.took_any);
  const ProbedLimits stopped = probed([](const Case&) { return false; }, {}, [] { return true; });
  EXPECT_TRUE(stopped.stopped);
  EXPECT_EQ(stopped.calls, 0);
}

}  // namespace
}  // namespace samestate
