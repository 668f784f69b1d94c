#pragma once

#include "harness/cases/laws.h"
#include "harness/cases/system.h"
#include "harness/run/law_subject.h"
#include "oracles/batch.h"
#include "oracles/systems/family.h"

namespace samestate {

/// A system of the recurrent family: tensors q, k, v, g, beta and a state, with its own bounds and laws and a
/// twin.
class RecurrentSystem final : public System {
 public:
  /// `parallel` is true if it has the form with a single chunk, which needs no inverse.
  RecurrentSystem(const Family& row, bool parallel);

  [[nodiscard]] Signature signature(const Case& c) const override;
  [[nodiscard]] double work(const Case& c, const JudgePolicy& policy) const override;
  [[nodiscard]] std::vector<CaseTensor> inputs(const Resolved& r) const override;
  [[nodiscard]] Judgement run(const Resolved& r, const KernelChoice& kernels, const RunOptions& options,
                              const JudgePolicy& policy, Trace* trace) const override;
  [[nodiscard]] std::vector<CaseTensor> outputs(const Resolved& r, const std::vector<CaseTensor>& inputs,
                                                const KernelChoice& kernels,
                                                const RunOptions& options) const override;
  [[nodiscard]] Neighbours neighbours(const Resolved& r, const Trace& run, double seconds,
                                      const std::function<bool()>& stop) const override;
  [[nodiscard]] Trace trace_before_run(const Resolved& r, const KernelRow& kernel) const override;
  [[nodiscard]] script_detail::Parts script_parts(const Resolved& r, const Record& record, const Trace& trace,
                                                  const ScriptWords& words, bool alone) const override;
  [[nodiscard]] std::vector<Held> held(const Resolved& r, const Trace& trace) const override;
  [[nodiscard]] Explanation explain(const Resolved& r, const Trace& trace) const override;
  [[nodiscard]] Judgement judge(const Resolved& r, const Trace& run, const JudgePolicy& policy,
                                std::vector<OperatorOracle>* oracles) const override;
  [[nodiscard]] CaseCost cost(const Resolved& r, bool on_device) const override;
  [[nodiscard]] std::unique_ptr<WholeCall> whole_call(const Resolved& r, int threads) const override;

  /// These inputs as a batch, the form that oracles and laws use.
  [[nodiscard]] Batch batch(const Resolved& r, const std::vector<CaseTensor>& inputs,
                            const Given& given) const;

  const Family& family;
};

/// Returns the inputs and outputs of a case of the family as tensors; none if the kernel returned nothing.
[[nodiscard]] std::vector<CaseTensor> tensors_of(const Resolved& r, Batch batch);
[[nodiscard]] std::vector<CaseTensor> tensors_of(const Resolved& r, Outputs outputs);

/// The sizes that a case of the family has, in its forward and in its backward pass.
[[nodiscard]] std::vector<CaseSize> family_sizes();

/// The properties of a system of the family.
[[nodiscard]] Properties properties_of(const Family& family);

/// The outputs of a run; empty if the kernel returned nothing.
[[nodiscard]] Outputs outputs_of(const std::vector<CaseTensor>& outputs);

}  // namespace samestate
