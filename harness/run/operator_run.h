#pragma once

#include "harness/cases/operator_case.h"
#include "optimized/operator_kernel.h"
#include "oracles/systems/judge_operator.h"

namespace samestate {

/// Runs a case of an operator on a kernel, one call a segment with the states carried, and returns its
/// outputs by sequence. Outputs are stale (harness/run/guard.h) before each call; inputs and guard elements
/// around every buffer are checked after it. Throws Unavailable and Trespass (harness/run/runner.h).
[[nodiscard]] std::vector<Tensors<double>> run_operator(const Case& c,
                                                        const std::vector<OperatorTensor>& inputs,
                                                        const OperatorKernel& kernel, int threads);

/// What a run was given, what it returned and what it was held against, by sequence.
struct OperatorRun {
  std::vector<OperatorTensor> inputs;
  std::vector<Tensors<double>> outputs;
  std::vector<OperatorOracle> oracles;
};

/// The worst judgement of the sequences of such a run, whose calls were of the form `native`; what they were
/// held against goes to `oracles`.
[[nodiscard]] Judgement judge_operator_run(const Case& c, std::string_view native, const OperatorRun& run,
                                           std::vector<OperatorOracle>* oracles = nullptr);

/// Inputs, run and judgement of all sequences of a case, the worst of them; the run itself goes to `kept`.
[[nodiscard]] Judgement judge_operator_case(const Case& c, const OperatorKernel& kernel, int threads,
                                            OperatorRun* kept = nullptr);

}  // namespace samestate
