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

/// A system of the documents as everything behind the case line asks for it; the table is in
/// harness/systems/. Its numerics (references, bounds, running errors) stand in oracles/ and are reached
/// through judge().
class System {
 public:
  virtual ~System() = default;

  std::string_view name;
  std::string_view equation;
  std::vector<std::string_view> keys;  ///< of its case lines, in canonical order
  std::vector<CaseSize> sizes;         ///< of its tensors
  std::vector<CaseForm> forms;         ///< of the case line, which means the first where it names none
  std::vector<const Regime*> regimes;  ///< that fit it
  std::vector<const Law*> laws;        ///< that it has by them, in the order of the table
  Numerics numerics = Numerics::running_errors;
  std::string_view
      kernel_rows;  ///< the function of a plugin that lists its kernels (optimized/call_kernel.h)
  TensorPrefixes in_file;
  std::vector<std::string> taps;  ///< of a layer: what a kernel may hand out between its stages
  PlanRows plan;
  Properties properties;  ///< what it is: laws, plans and declarations go by it

  /// The tensors of one sequence in one call of all its tokens. Throws Error for sizes that are impossible
  /// together; names key, value, limit, remedy.
  [[nodiscard]] virtual Signature signature(const Case& c) const = 0;

  /// Returns what judging the case under `policy` takes, as a share of the most that a plan gives one seeded case. Plans ask for
  /// the gate's.
  [[nodiscard]] virtual double work(const Case& c, const JudgePolicy& policy) const = 0;

  /// The inputs, each element a function of (seed, tensor, coordinates), rounded to the formats of the
  /// contract.
  [[nodiscard]] virtual std::vector<CaseTensor> inputs(const Resolved& r) const = 0;

  /// Runs `kernels` on the case and judges what they did, by the law where the case names one, as far as `policy` looks. What was read
  /// and written goes to `trace` where it is not null. Throws Unavailable, Trespass and what a kernel throws.
  [[nodiscard]] virtual Judgement run(const Resolved& r, const KernelChoice& kernels,
                                      const RunOptions& options, const JudgePolicy& policy,
                                      Trace* trace) const = 0;

  /// Runs `kernels` on such inputs and returns what they wrote. Throws as run does.
  [[nodiscard]] virtual std::vector<CaseTensor> outputs(const Resolved& r,
                                                        const std::vector<CaseTensor>& inputs,
                                                        const KernelChoice& kernels,
                                                        const RunOptions& options) const = 0;

  /// The tensors between the stages of a layer that a kernel of the native form may hand out in the case, where it asks for taps.
  [[nodiscard]] virtual std::vector<TensorSpec> taps_of(const Resolved& r, std::string_view native) const;

  /// Contracts near that of the case under which the outputs of `run` pass (harness/card/neighbours.h).
  [[nodiscard]] virtual Neighbours neighbours(const Resolved& r, const Trace& run, double seconds,
                                              const std::function<bool()>& stop) const = 0;

  /// Returns what a run that was not made would begin with: the inputs as the kernel is given them, and what its
  /// outputs are held to where that is not computed from the inputs later.
  [[nodiscard]] virtual Trace trace_before_run(const Resolved& r, const KernelRow& kernel) const = 0;

  /// The parts of a script that makes the run of `trace` (harness/script/script_parts.h); `alone`: its worst part alone. Throws Error
  /// for a run that no script makes.
  [[nodiscard]] virtual script_detail::Parts script_parts(const Resolved& r, const Record& record,
                                                          const Trace& trace, const ScriptWords& words,
                                                          bool alone) const = 0;

  /// Every output of a run without a law, sequence by sequence.
  [[nodiscard]] virtual std::vector<Held> held(const Resolved& r, const Trace& trace) const = 0;

  /// What a person wants to know of a run that differs (harness/explain/explain.h).
  [[nodiscard]] virtual Explanation explain(const Resolved& r, const Trace& trace) const = 0;

  /// Judges inputs and outputs of a run that was made here or elsewhere (judge_run of harness/systems/saved_run.h checks the inputs
  /// first). Trace::oracles, for explain(), go to `oracles` where it is not null. The kernel is not there: a policy without
  /// JudgePolicy::reruns.
  [[nodiscard]] virtual Judgement judge(const Resolved& r, const Trace& run, const JudgePolicy& policy,
                                        std::vector<OperatorOracle>* oracles) const = 0;

  /// What the case costs, a call of its native form (harness/cases/case_cost.h). `on_device`: tensors travel
  /// in the contract's formats; on the processor everything is fp32.
  [[nodiscard]] virtual CaseCost cost(const Resolved& r, bool on_device) const = 0;

  /// The case as one call (harness/run/whole_call.h), its data made by `threads` threads. Throws Error for a
  /// case that is several.
  [[nodiscard]] virtual std::unique_ptr<WholeCall> whole_call(const Resolved& r, int threads) const = 0;

  /// Whether a kernel of the native form `kernel_form` makes the calls of the case, or the first of them.
  [[nodiscard]] bool evaluates(const Resolved& r, std::string_view kernel_form) const;

  /// The case whose line names nothing but the system.
  [[nodiscard]] Case standard() const;
  [[nodiscard]] bool has(Property wanted) const;
  [[nodiscard]] bool has_key(std::string_view wanted) const;
  /// Returns true if it is of the recurrent family: keys, values, gates and a state, whose heads and widths are the keys Hk, Hv, dk
  /// and dv of every case line.
  [[nodiscard]] bool of_family() const { return numerics == Numerics::derived_bounds; }
  /// Returns true if a call of the case may begin with a state, so that there is something to judge without tokens, too.
  [[nodiscard]] bool carries_state(const Case& c) const;
  /// Null where there is none.
  [[nodiscard]] const CaseForm* form(std::string_view wanted) const;
  /// The names of all forms.
  [[nodiscard]] std::vector<std::string_view> form_names() const;
  /// Whether kernels are written for the form: decode and packed runs are calls of others.
  [[nodiscard]] bool native(std::string_view wanted) const;
  /// The form whose tokens, or value heads, are divided among ranks; null where it has none.
  [[nodiscard]] const CaseForm* ranked(bool by_heads = false) const;
  /// Null where it has none of that name.
  [[nodiscard]] const Regime* regime(std::string_view wanted) const;
  [[nodiscard]] const Law* law(std::string_view wanted) const;
};

/// The table, a row a system.
[[nodiscard]] std::span<const System* const> systems();

/// Throws Error that lists the names.
[[nodiscard]] const System& system_named(std::string_view name);

}  // namespace samestate
