#include "harness/run/repeated_call.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "harness/run/run_case.h"
#include "harness/systems/tensor_inputs.h"
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

}  // namespace
}  // namespace samestate
