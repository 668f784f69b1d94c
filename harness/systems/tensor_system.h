#pragma once

#include <functional>
#include <span>
#include <vector>

#include "harness/cases/resolved.h"
#include "harness/run/call_loop.h"
#include "oracles/systems/judge_operator.h"

namespace samestate {

/// The calls that a kernel of one form makes of a case.
struct TensorCalls {
  Call whole;               ///< the call with all tokens
  std::vector<Index> cuts;  ///< where calls end, the last excepted
  Signature signature;      ///< the signature of that call
};

/// A system of named tensors: its row describes it, and evaluates its reference in float64 and with the
/// running error, by which every element is judged.
class TensorSystem final : public System {
 public:
  explicit TensorSystem(const Operator& row);

  [[nodiscard]] Signature signature(const Case& c) const override;
  /// Infinite if the sizes are impossible together.
  [[nodiscard]] double work(const Case& c, const JudgePolicy& policy) const override;
  [[nodiscard]] std::vector<CaseTensor> inputs(const Resolved& r) const override;
  [[nodiscard]] Judgement run(const Resolved& r, const KernelChoice& kernels, const RunOptions& options,
                              const JudgePolicy& policy, Trace* trace) const override;
  [[nodiscard]] std::vector<CaseTensor> outputs(const Resolved& r, const std::vector<CaseTensor>& inputs,
                                                const KernelChoice& kernels,
                                                const RunOptions& options) const override;
  [[nodiscard]] std::vector<TensorSpec> taps_of(const Resolved& r, std::string_view native) const override;
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

  /// The number of a case's sequences that are compared with their tolerance: all or, without a law,
  /// JudgePolicy::held_heads, or as many as its `sequence_seconds` allow, but at least one.
  [[nodiscard]] Index sequences_to_hold(const Case& c, const JudgePolicy& policy) const;

  /// Returns the calls that a kernel of the form `native` gets.
  [[nodiscard]] TensorCalls calls(const Resolved& r, std::string_view native) const;

  /// The call of a case over all of its tokens; for form=decode and packed, with the form that `native`
  /// names.
  [[nodiscard]] Call call(const Case& c, std::string_view native) const;

  /// The sizes and settings of a case's calls, by the names of the row's parameters.
  [[nodiscard]] Sizes parameters(const Case& c) const;

  const Operator& row;
};

/// The calls of a case that end at `cuts`, and one after the last cut. `call` and `inputs` must outlive the
/// result.
[[nodiscard]] CallLoop tensor_loop(const Case& c, const Call& call, const std::vector<CaseTensor>& inputs,
                                   const std::vector<TensorSpec>& outputs, const std::vector<Index>& cuts);

/// Where the calls of a case end, without the last one: form=decode evaluates `prefill` tokens, then one per
/// call.
[[nodiscard]] std::vector<Index> cuts_of(const Resolved& r);

/// True if no token's result depends on another's, so that a long sequence may be compared with its tolerance
/// at some of its tokens (ChosenTokens): tokens are independent, or depend on each other only through rows
/// that all calls receive.
[[nodiscard]] bool held_by_token(const Operator& row, const Signature& signature);

/// The shape of a tensor over all sequences of a case, and the tensor. One of Axis::whole has no extent of the batch: as
/// an input it is the same for every sequence, as an output a sum over them.
[[nodiscard]] std::vector<std::int64_t> case_shape(const TensorSpec& spec, const Case& c);
[[nodiscard]] CaseTensor case_tensor(const TensorSpec& spec, const Case& c, std::vector<float> data = {});

/// The call of one sequence of a case whose call is `whole`.
[[nodiscard]] Call call_of_sequence(Call whole, const Case& c, Index sequence);

/// Sequence b of these tensors, in the form that the oracle reads.
[[nodiscard]] Tensors<double> sequence_of(const std::vector<CaseTensor>& tensors, Index b);
/// The outputs of a run, for each sequence; those that belong to none are left out.
[[nodiscard]] std::vector<Tensors<double>> by_sequence(const std::vector<CaseTensor>& outputs);

/// True if an output of the case is a sum over its sequences (sums_sequences): a run is then judged as one of a single
/// sequence, which has the tokens of all.
[[nodiscard]] bool is_end_to_end(const Resolved& r);
/// The case and its run in that view; a packed case has the form `native` of its kernel, since chunks round otherwise than
/// tokens one by one. For rows whose tokens meet the inputs say where sequences end (kLengths).
[[nodiscard]] Resolved end_to_end(const Resolved& r, std::string_view native);
[[nodiscard]] std::vector<CaseTensor> end_to_end(const Resolved& r, std::vector<CaseTensor> tensors);
[[nodiscard]] Trace end_to_end(const Resolved& r, const Trace& run);
/// The place in the case of a row of that output in that view; without a sequence where the row belongs to none.
[[nodiscard]] Location within_sequences(const Resolved& r, const TensorSpec& output, Location at);

}  // namespace samestate
