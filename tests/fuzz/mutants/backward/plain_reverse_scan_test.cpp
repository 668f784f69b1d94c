#include "fuzz/mutants/backward/plain_reverse_scan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "harness/run/run_case.h"
#include "optimized/operator_kernel.h"

namespace samestate::mutants {
namespace {

Judgement judged_scan(const std::string& line, ScanSlip slip) {
  OperatorKernel row =
      *std::ranges::find(operator_kernels(), "cpu.selective_scan.backward.chunked", &OperatorKernel::name);
  row.strided = row.packed = false;
  row.run = [slip](const OperatorArguments& call, const Contract& contract) {
    return plain_reverse_scan(call, contract, slip);
  };
  return run_case(parse_case(line), KernelTable({}, std::span<const OperatorKernel>(&row, 1)), 1, nullptr)
      .judgement;
}

// Otherwise a mutant that is made of it would be killed for something else than its fault.
TEST(PlainReverseScan, WithoutASlipIsRight) {
  for (const std::string sizes :
       {"B=2 T=11 D=5 N=3", "B=2 T=11 D=5 N=3 contract=bf16", "B=2 T=11 D=5 N=3 contract=fp16",
        "B=2 T=11 D=5 N=3 hold=1", "B=2 T=11 D=5 N=3 hold=1 regime=wide_rates", "B=2 T=11 D=5 N=3 cotangent=state",
        "B=2 T=11 D=5 N=3 cotangent=o", "T=3 D=5 N=3", "D=1 N=1 T=1"}) {
    const Judgement j =
        judged_scan("v1 selective_scan pass=backward form=chunked chunk=4 seed=0x7 " + sizes, ScanSlip::none);
    EXPECT_EQ(j.verdict, Verdict::pass) << sizes << ": " << j.reason << " " << j.ratio;
  }
}

TEST(PlainReverseScan, EverySlipFails) {
  for (int slip = 1; slip <= static_cast<int>(ScanSlip::last_decay_lost); ++slip) {
    const Judgement j =
        judged_scan("v1 selective_scan pass=backward form=chunked chunk=4 B=2 T=11 D=5 N=3 hold=1 seed=0x7",
                    static_cast<ScanSlip>(slip));
    EXPECT_EQ(j.verdict, Verdict::fail) << slip;
  }
}

}  // namespace
}  // namespace samestate::mutants
