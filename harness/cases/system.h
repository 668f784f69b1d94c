#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "harness/cases/laws.h"
#include "harness/cases/regimes.h"
#include "harness/cases/system_rows.h"
#include "oracles/verdict.h"

namespace samestate {

struct Case;
struct JudgePolicy;
struct Resolved;
struct RunOptions;
struct KernelChoice;
struct Trace;
struct OperatorOracle;
struct CaseCost;
struct Explanation;
struct KernelRow;
struct Neighbours;
struct Record;
struct ScriptWords;
class WholeCall;
namespace script_detail {
struct Parts;
}

/// A system of the documents, with everything that code working on a resolved case needs; the table is in
/// harness/systems/. Its numerics (references, bounds, running errors) are in oracles/ and are reached
/// through judge().
class System {
 public:
  virtual ~System() = default;

  std::string_view name;
  std::string_view equation;
  std::vector<std::string_view> keys;  ///< the keys of its case lines, in canonical order
  std::vector<CaseSize> sizes;         ///< the sizes of its tensors
  std::vector<CaseForm> forms;         ///< its forms in the case line; a line without a form means the first
  std::vector<const Regime*> regimes;  ///< the regimes that suit it
  std::vector<const Law*> laws;        ///< the laws that its properties give it, in the order of the table
  Numerics numerics = Numerics::running_errors;
  std::string_view kernel_rows;  ///< the plugin function that lists its kernels (optimized/call_kernel.h)
  TensorPrefixes in_file;
  std::vector<std::string> taps;  ///< for a layer: the tensors between its stages that a kernel may hand out
  PlanRows plan;
  Properties properties;  ///< its properties, on which laws, plans and declarations depend

  /// The tensors of one sequence in one call over all its tokens. Throws Error for sizes that are impossible
  /// together, naming key, value, limit and remedy.
  [[nodiscard]] virtual Signature signature(const Case& c) const = 0;

  /// The work of judging the case under `policy`, as a share of the maximum that a plan allows one seeded
  /// case. Plans ask with the gate's policy.
  [[nodiscard]] virtual double work(const Case& c, const JudgePolicy& policy) const = 0;

  /// The inputs: each element is a function of (seed, tensor, coordinates), rounded to the formats of the
  /// contract.
  [[nodiscard]] virtual std::vector<CaseTensor> inputs(const Resolved& r) const = 0;

  /// Runs `kernels` on the case and judges the results, by the law if the case names one, as far as `policy`
  /// looks. If `trace` is not null it receives what was read and written. Throws Unavailable, Trespass and
  /// what a kernel throws.
  [[nodiscard]] virtual Judgement run(const Resolved& r, const KernelChoice& kernels,
                                      const RunOptions& options, const JudgePolicy& policy,
                                      Trace* trace) const = 0;

  /// Runs `kernels` on these inputs and returns their outputs. Throws as run does.
  [[nodiscard]] virtual std::vector<CaseTensor> outputs(const Resolved& r,
                                                        const std::vector<CaseTensor>& inputs,
                                                        const KernelChoice& kernels,
                                                        const RunOptions& options) const = 0;

  /// The tensors between the stages of a layer that a kernel of the native form may hand out in the case, if
  /// it asks for taps.
  [[nodiscard]] virtual std::vector<TensorSpec> taps_of(const Resolved& r, std::string_view native) const;

  /// Contracts near that of the case under which the outputs of `run` pass (harness/card/neighbours.h).
  [[nodiscard]] virtual Neighbours neighbours(const Resolved& r, const Trace& run, double seconds,
                                              const std::function<bool()>& stop) const = 0;

  /// The trace that a run would start with, for a run that was not made: the inputs as the kernel receives
  /// them, and the expected outputs if these are not computed from the inputs later.
  [[nodiscard]] virtual Trace trace_before_run(const Resolved& r, const KernelRow& kernel) const = 0;

  /// The parts of a script that repeats the run of `trace` (harness/script/script_parts.h); with `alone`,
  /// only its worst part. Throws Error for a run that no script can make.
  [[nodiscard]] virtual script_detail::Parts script_parts(const Resolved& r, const Record& record,
                                                          const Trace& trace, const ScriptWords& words,
                                                          bool alone) const = 0;

  /// Every output of a run without a law, sequence by sequence.
  [[nodiscard]] virtual std::vector<Held> held(const Resolved& r, const Trace& trace) const = 0;

  /// The explanation of a run that differs, for a person (harness/explain/explain.h).
  [[nodiscard]] virtual Explanation explain(const Resolved& r, const Trace& trace) const = 0;

  /// Judges inputs and outputs of a run that was made here or elsewhere (judge_run of harness/systems/saved_run.h checks the inputs
  /// first). Trace::oracles, for explain(), go to `oracles` where it is not null. The kernel is not there: a policy without
  /// JudgePolicy::reruns.
  [[nodiscard]] virtual Judgement judge(const Resolved& r, const Trace& run, const JudgePolicy& policy,
                                        std::vector<OperatorOracle>* oracles) const = 0;

  /// The cost of the case as one call of its native form (harness/cases/case_cost.h). With `on_device`
  /// tensors are passed in the contract's formats; on the CPU everything is fp32.
  [[nodiscard]] virtual CaseCost cost(const Resolved& r, bool on_device) const = 0;

  /// The case as one call (harness/run/whole_call.h), with data made by `threads` threads. Throws Error for a
  /// case that makes several calls.
  [[nodiscard]] virtual std::unique_ptr<WholeCall> whole_call(const Resolved& r, int threads) const = 0;

  /// True if a kernel of the native form `kernel_form` makes the calls of the case, or the first of them.
  [[nodiscard]] bool evaluates(const Resolved& r, std::string_view kernel_form) const;

  /// The case whose line contains only the system.
  [[nodiscard]] Case standard() const;
  [[nodiscard]] bool has(Property wanted) const;
  [[nodiscard]] bool has_key(std::string_view wanted) const;
  /// True for the recurrent family: keys, values, gates and a state, whose heads and widths are the keys Hk,
  /// Hv, dk and dv of every case line.
  [[nodiscard]] bool of_family() const { return numerics == Numerics::derived_bounds; }
  /// True if a call of the case may start from a state, so that there is something to judge even without
  /// tokens.
  [[nodiscard]] bool carries_state(const Case& c) const;
  /// Null if there is none.
  [[nodiscard]] const CaseForm* form(std::string_view wanted) const;
  /// The names of all forms.
  [[nodiscard]] std::vector<std::string_view> form_names() const;
  /// True if kernels are written for the form; decode and packed runs are calls of other forms.
  [[nodiscard]] bool native(std::string_view wanted) const;
  /// The form whose tokens, or value heads, are divided among ranks; null if there is none.
  [[nodiscard]] const CaseForm* ranked(bool by_heads = false) const;
  /// Null if it has none of that name.
  [[nodiscard]] const Regime* regime(std::string_view wanted) const;
  [[nodiscard]] const Law* law(std::string_view wanted) const;
};

/// The table, one row per system.
[[nodiscard]] std::span<const System* const> systems();

/// The system of that name. Throws Error that lists the names.
[[nodiscard]] const System& system_named(std::string_view name);

/// The system that gives the gradients of the system of that name. Throws Error that lists those with gradients.
[[nodiscard]] const System& backward_of(std::string_view name);

}  // namespace samestate
