#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "harness/run/kernel_table.h"
#include "harness/run/run_case.h"
#include "harness/systems/judge_tensors.h"

/// Kernels that a test has in addition to those of the table, and how a case judges them.
namespace samestate {

using RunOperator = std::function<Outcome(const OperatorArguments&)>;

/// A kernel of `form` on the case's data.
inline Judgement judged_kernel(const std::string& line, const std::string& form, RunOperator run) {
  const Resolved r(parse_case(line));
  const KernelRow row = adapted(OperatorKernel{
      "cpu." + r.c.system + ".of_a_test",
      r.c.system,
      form,
      "cpu",
      {r.c.contract},
      [run = std::move(run)](const OperatorArguments& call, const Contract&) { return run(call); }});
  const auto& system = dynamic_cast<const TensorSystem&>(*r.system);
  const std::vector<CaseTensor> inputs = system.inputs(r);
  return judge_tensors(r, system, system.calls(r, row.form), inputs,
                       by_sequence(system.outputs(r, inputs, {&row, &row, &row}, {r.layout, 1})),
                       kGatePolicy);
}

}  // namespace samestate
