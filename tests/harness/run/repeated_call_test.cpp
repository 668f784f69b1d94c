#include "harness/run/repeated_call.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "harness/run/run_case.h"
#include "harness/systems/tensor_inputs.h"
#include "optimized/call_kernel.h"
#include "tests/harness/operator_row.h"

namespace samestate {
namespace {

// Half of a slot is none, and the calls between are to be ones that a kernel takes: their other data differ, and their slots
// are the case's.
TEST(RepeatedCall, LeavesIndicesAlone) {
  const OperatorKernel& right = operator_row("cpu.gated_delta_step.expanded");
  std::set<std::vector<float>> slots, values;
  OperatorKernel kernel = right;
  kernel.strided = false;
  kernel.run = [&](const OperatorArguments& call, const Contract& contract) {
    const auto& slot = call.input("slot");
    slots.emplace(slot.data, slot.data + call.batch);
    const auto& A_log = call.input("A_log");
    values.emplace(A_log.data, A_log.data + A_log.shape.front());
    return right.run(call, contract);
  };
  const Resolved r(parse_case("v1 gated_delta_step form=expanded T=3 B=8 P=3 repeat=1 seed=2"));
  std::vector<float> given;
  for (const CaseTensor& x : tensor_inputs(r)) {
    if (x.spec.content == Content::slot) given = x.data;
  }
  ASSERT_TRUE(std::set<float>(given.begin(), given.end()).size() > 1);
  const KernelRow row = adapted(kernel);
  RunOptions options{r.layout, 1};
  options.repeat = true;
  const Judgement j = r.system->run(r, {&row, &row, &row}, options, kGatePolicy, nullptr);
  EXPECT_EQ(j.verdict, Verdict::pass) << j.reason;
  EXPECT_EQ(slots, (std::set<std::vector<float>>{given}));
  EXPECT_EQ(values.size(), 2U);
}

/// The verdict on a kernel of rms_norm, whose row says whether it is deterministic, in cases that repeat each call.
Judgement of_repeated(const OperatorKernel& kernel, bool deterministic, std::uint64_t seed) {
  const Resolved r(parse_case("v1 rms_norm form=fused T=3 D=24 repeat=1 seed=" + std::to_string(seed)));
  KernelRow row = adapted(kernel);
  row.deterministic = deterministic;
  const KernelChoice choice{&row, &row, &row};
  return run_resolved(r, choice, 1, nullptr).judgement;
}

// Atomics add in another order in each call, so that last bits differ.
TEST(RepeatedCall, AKernelMaySayThatItsBitsDiffer) {
  const OperatorKernel& right = operator_row("cpu.rms_norm.fused");
  OperatorKernel kernel = right;
  int calls = 0;
  kernel.run = [&](const OperatorArguments& call, const Contract& contract) {
    const Outcome outcome = right.run(call, contract);
    float& y = call.output("y").data[0];
    if (++calls % 2 == 0) y = std::nextafter(y, 0.0F);
    return outcome;
  };
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    const Judgement j = of_repeated(kernel, true, seed);
    EXPECT_EQ(j.verdict, Verdict::fail) << seed;
    EXPECT_EQ(j.gate, "repeat") << seed;
    EXPECT_EQ(of_repeated(kernel, false, seed).verdict, Verdict::pass) << seed;
  }
}

// The judge sees a cache in such a kernel too, by the values that it returns. One kernel keeps its first outputs for good,
// and the other makes every second call anew.
TEST(RepeatedCall, WhatIsKeptIsSeenWithoutBits) {
  const OperatorKernel& right = operator_row("cpu.rms_norm.fused");
  for (const int kept : {1'000'000, 1}) {
    int failed = 0;
    for (std::uint64_t seed = 1; seed <= 16; ++seed) {
      OperatorKernel kernel = right;
      std::vector<float> cache;
      int uses = 0;
      kernel.run = [&](const OperatorArguments& call, const Contract& contract) {
        const auto& y = call.output("y");
        const std::size_t size = static_cast<std::size_t>(call.batch * call.tokens * y.shape.back());
        if (cache.size() >= size && uses++ % (kept + 1) < kept) {
          std::copy_n(cache.begin(), size, y.data);
          return Outcome{};
        }
        Outcome outcome = right.run(call, contract);
        cache.assign(y.data, y.data + size);
        return outcome;
      };
      failed += of_repeated(kernel, false, seed).verdict == Verdict::fail ? 1 : 0;
    }
    EXPECT_GE(failed, kept == 1 ? 4 : 16) << kept;
  }
}

// A law that compares two runs in bits compares those of such a kernel within their bounds.
TEST(RepeatedCall, LawsInBitsGoByTheDeclarationToo) {
  const KernelTable table(call_kernels());
  const KernelRow& right = table.row_named("cpu.gated_delta_rule.backward.recurrent");
  KernelRow row = right;
  int calls = 0;
  row.run = [&](const KernelCall& call, const Contract& contract) {
    const Outcome outcome = right.run(call, contract);
    auto& first = *static_cast<float*>(call.output("d.q")->data);
    if (++calls % 2 == 0) first = std::nextafter(first, 0.0F);
    return outcome;
  };
  const Resolved r(
      parse_case("v1 gated_delta_rule pass=backward form=recurrent T=9 dk=8 dv=8 law=reset seed=4"));
  for (const bool deterministic : {true, false}) {
    row.deterministic = deterministic;
    const KernelChoice choice{&row, &row, &row};
    EXPECT_EQ(run_resolved(r, choice).judgement.verdict, deterministic ? Verdict::fail : Verdict::pass);
  }
}

}  // namespace
}  // namespace samestate
