#include "fuzz/mutants/backward/plain_reverse_duality.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "harness/run/run_case.h"
#include "optimized/operator_kernel.h"

namespace samestate::mutants {
namespace {

Judgement judged_duality(const std::string& line, DualitySlip slip) {
  OperatorKernel row = *std::ranges::find(operator_kernels(), "cpu.state_space_duality.backward.chunked",
                                          &OperatorKernel::name);
  row.strided = row.packed = false;
  row.run = [slip](const OperatorArguments& call, const Contract& contract) {
    return plain_reverse_duality(call, contract, slip);
  };
  return run_case(parse_case(line), KernelTable({}, std::span<const OperatorKernel>(&row, 1)), 1, nullptr)
      .judgement;
}

// Otherwise a mutant that is made of it would be killed for something else than its fault.
TEST(PlainReverseDuality, WithoutASlipIsRight) {
  for (const std::string sizes :
       {"B=2 T=11 H=4 G=2 P=3 N=5", "B=2 T=11 H=4 G=2 P=3 N=5 contract=bf16",
        "B=2 T=11 H=4 G=2 P=3 N=5 contract=fp16", "B=2 T=11 H=4 G=2 P=3 N=5 cotangent=state",
        "B=2 T=11 H=4 G=2 P=3 N=5 cotangent=o", "T=3 H=4 G=2 P=3 N=5", "H=1 G=1 P=1 N=1 T=1"}) {
    const Judgement j = judged_duality(
        "v1 state_space_duality pass=backward form=chunked chunk=4 seed=0x7 " + sizes, DualitySlip::none);
    EXPECT_EQ(j.verdict, Verdict::pass) << sizes << ": " << j.reason << " " << j.ratio;
  }
}

TEST(PlainReverseDuality, EverySlipFails) {
  for (int slip = 1; slip <= static_cast<int>(DualitySlip::last_decay_lost); ++slip) {
    const Judgement j = judged_duality(
        "v1 state_space_duality pass=backward form=chunked chunk=4 B=2 T=11 H=4 G=2 P=3 N=5 seed=0x7",
        static_cast<DualitySlip>(slip));
    EXPECT_EQ(j.verdict, Verdict::fail) << slip;
  }
}

}  // namespace
}  // namespace samestate::mutants
