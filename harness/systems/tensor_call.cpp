#include <algorithm>
#include <chrono>

#include "harness/cases/case_cost.h"
#include "harness/run/kernel_table.h"
#include "harness/run/run_case.h"
#include "harness/run/whole_call.h"
#include "harness/systems/judge_tensors.h"
#include "harness/systems/tensor_inputs.h"
#include "harness/systems/tensor_system.h"
#include "oracles/systems/input_format.h"
#include "oracles/systems/judge_sequence.h"

/// A call of a system of named tensors, the last one in a decoded case: what it costs, and its tensors for
/// timing.
namespace samestate {
namespace {

/// Returns the format of matrix products on operands in the contract's input format; none if no rate is
/// measured for it.
Format operands_of(const Contract& contract) {
  if (contract.input == Format::bf16 || contract.input == Format::fp16) return Format::bf16;
  return contract.input == Format::fp32 ? contract.input : Format::none;
}

class TensorCall final : public WholeCall {
 public:
  TensorCall(const Resolved& r, const TensorSystem& system, int threads)
      : r_(r),
        system_(system),
        cuts_(cuts_of(r_)),
        call_of_(system.call(r_.c, r_.form->of_any_form() ? system.row.forms.front().name : r_.c.form)),
        inputs_(tensor_inputs(r_)),
        specs_(system.row.signature(call_of_).outputs) {
    contract_ = *r_.contract;
    call_.threads = threads;
    outputs_.resize(specs_.size());
    if (!r_.form->of_any_form()) make_whole();
  }

  void prepare(const KernelChoice& kernels) override {
    round_inputs(inputs_, kernels.named->formats);  // in place: the call's tensors refer to these
    if (!r_.form->of_any_form()) return;
    call_of_ = system_.call(r_.c, kernels.named->form);
    if (cuts_.empty()) return make_whole();
    loop_ = tensor_loop(r_.c, call_of_, inputs_, specs_, cuts_);
    if (by_token()) return keep(last_alone());
    RunOptions options;
    options.threads = call_.threads;
    options.of = &r_.c;
    std::size_t calls = 0;
    written_ = run_calls(loop_, options, [&](const Segment&, const KernelCall& one) {
      run_row(*kernels.named, one, contract_, options.of);
      if (calls++ == cuts_.size()) keep(one);
    });
  }

  [[nodiscard]] std::int64_t parts() const override { return is_end_to_end(r_) ? 1 : sequences_of(r_.c); }

  [[nodiscard]] Judgement judge(std::int64_t part, const KernelChoice&,
                                const JudgePolicy& policy) const override {
    const Operator& row = system_.row;
    SequencePart of = is_end_to_end(r_) ? all_sequences()
                                        : SequencePart{call_of_sequence(call_of_, r_.c, part),
                                                       cuts_,
                                                       sequence_of(inputs_, part),
                                                       written_of(part),
                                                       {}};
    // The results of earlier calls were not timed, and are not judged here.
    if (!cuts_.empty() && by_token()) of = part_of(row, call_of_, cuts_, of.inputs, of.outputs, {r_.c.T - 1});
    const auto begin = std::chrono::steady_clock::now();
    const OperatorOracle oracle = operator_oracle(row, of.call, of.inputs, of.cuts, contract_);
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
    // No measured amount of work applies to only the last call of a timed case.
    const GatesAsked asked{
        [&](Verdict) { return oracle.points && taken.count() <= policy.timed_twin_seconds; },
        [&](Verdict v) { return v == Verdict::vacuous && taken.count() <= policy.timed_draw_seconds; },
        [&](double) { return row.family != nullptr && taken.count() <= policy.timed_draw_seconds; }};
    Judgement j = judge_sequence({row, of.call, of.inputs, of.cuts, contract_, oracle}, of.outputs, r_.c.seed,
                                 policy, asked);
    if (!of.tokens.empty() && j.worst.token >= 0)
      j.worst.token += of.tokens.front() * row.signature(of.call).outputs.front().rows();
    j.worst.sequence = part;
    return j;
  }

 private:
  /// Returns true if the last call needs nothing that the calls before it wrote.
  [[nodiscard]] bool by_token() const { return held_by_token(system_.row, system_.row.signature(call_of_)); }

  void make_whole() {
    loop_ = tensor_loop(r_.c, call_of_, inputs_, specs_, {});
    std::vector<std::vector<float>*> outputs;
    for (std::vector<float>& data : outputs_) outputs.push_back(&data);
    lay_out(loop_, outputs);
  }

  /// Returns the call of the last token, on parts of whole tensors.
  [[nodiscard]] KernelCall last_alone() const {
    KernelCall one = loop_.settings;
    one.tokens = 1;
    one.set("chunk", static_cast<double>(r_.c.chunk));
    const auto part = [&](const RunTensor& x, const float* data) {
      StridedTensor of = row_major_tensor(const_cast<float*>(data), x.shape);
      if (x.axis == Axis::tokens) of = of.slice(x.batched ? 1 : 0, r_.c.T - 1, r_.c.T);
      return with_elements({.name = x.name, .axis = x.axis, .indices = x.indices}, of);
    };
    for (const RunTensor& x : loop_.inputs) one.inputs.push_back(part(x, x.data->data()));
    for (const RunTensor& x : loop_.outputs) one.outputs.push_back(part(x, nullptr));
    return one;
  }

  /// Keeps the call's own tensors, so that it can be made again; its outputs stay as they were written.
  void keep(const KernelCall& one) {
    const int threads = call_.threads;
    call_ = one;
    call_.threads = threads;
    no_tensors();
    last_inputs_.clear();
    last_inputs_.reserve(one.inputs.size());
    for (const CallTensor& x : one.inputs) {
      const auto of = std::ranges::find(loop_.inputs, x.name, &RunTensor::name);
      last_inputs_.push_back(values_of(elements_of(x)));
      input(*of, {x.shape, of->axis, of->batched}, last_inputs_.back());
    }
    for (std::size_t i = 0; i < one.outputs.size(); ++i)
      output(one.outputs[i].name, {one.outputs[i].shape, specs_[i].axis}, outputs_[i]);
  }

  /// Returns all sequences end to end; such a case is a single call.
  [[nodiscard]] SequencePart all_sequences() const {
    Trace run{inputs_, {}, call_of_.form, {}, {}, {}};
    for (std::size_t i = 0; i < specs_.size(); ++i)
      run.outputs.push_back(case_tensor(specs_[i], r_.c, outputs_[i]));
    const Resolved one = end_to_end(r_, call_of_.form);
    const Trace seen = end_to_end(r_, run);
    return {system_.call(one.c, call_of_.form),
            {},
            sequence_of(seen.inputs, 0),
            sequence_of(seen.outputs, 0),
            {}};
  }

  /// Returns sequence `part` of all outputs: the last rows of tokens were written by the timed call, the
  /// earlier ones by the calls before it.
  [[nodiscard]] Tensors<double> written_of(std::int64_t part) const {
    if (r_.form->packed) {
      std::vector<CaseTensor> outputs;
      for (std::size_t i = 0; i < specs_.size(); ++i)
        outputs.push_back(case_tensor(specs_[i], r_.c, outputs_[i]));
      return sequence_of(outputs, part);
    }
    Tensors<double> all;
    for (std::size_t i = 0; i < specs_.size(); ++i) {
      Matrix<double> x = Matrix<double>::Zero(specs_[i].rows(), specs_[i].columns());
      const std::vector<float>& timed = outputs_[i];
      const Index size = std::ssize(timed) / r_.c.B;
      const auto copy = [&](const std::vector<float>& from, Index count, Index to) {
        for (Index e = 0; e < count; ++e)
          x.data()[to + e] = static_cast<double>(from[static_cast<std::size_t>(part * count + e)]);
      };
      if (!written_.empty()) copy(written_[i], x.size(), 0);
      copy(timed, size, x.size() - size);
      all.emplace(specs_[i].name, std::move(x));
    }
    return all;
  }

  Resolved r_;
  const TensorSystem& system_;
  std::vector<Index> cuts_;  ///< where the calls before the timed one end
  Call call_of_;
  std::vector<CaseTensor> inputs_;
  std::vector<TensorSpec> specs_;  ///< specs of the outputs
  CallLoop loop_;                  ///< owns the names that the call refers to
  std::vector<std::vector<float>> written_, last_inputs_, outputs_;
};

}  // namespace

CaseCost TensorSystem::cost(const Resolved& r, bool on_device) const {
  Call one = call(r.c, row.forms.front().name);
  const OperatorForm* form = row.form(one.form);
  if (form == nullptr || !form->chunked) one.chunk = 0;
  const Signature signature = row.signature(one);
  Cost of = row.cost(one, signature);
  if (r.form->packed) {
    of.operations = of.idle = 0;
    for (Index n = 0; n < sequences_of(r.c); ++n) {
      const Call sequence = call_of_sequence(one, r.c, n);
      const Cost alone = row.cost(sequence, row.signature(sequence));
      of.operations += alone.operations;
      of.idle += alone.idle;
    }
  }
  const std::vector<Index> cuts = cuts_of(r);
  if (!cuts.empty()) {  // the last call: the tokens after the cut, with the states that the others left
    Call before = one;
    before.tokens = cuts.back();
    const Cost earlier = row.cost(before, row.signature(before));
    of.operations -= earlier.operations;
    of.idle -= earlier.idle;
  }
  const Index tokens = r.c.T - (cuts.empty() ? 0 : cuts.back());
  CaseCost cost;
  const auto add = [&](const TensorSpec& spec, bool batched, Format format) {
    const Index size = spec.axis == Axis::tokens && r.c.T > 0 ? spec.size() / r.c.T * tokens : spec.size();
    const Index count = !batched                                                 ? 1
                        : spec.axis == Axis::tokens || spec.axis == Axis::prefix ? r.c.B
                                                                                 : sequences_of(r.c);
    cost.bytes += count * size * (on_device ? bytes_of(format) : 4);
  };
  for (const TensorSpec& spec : signature.inputs) {
    const Format format = spec.axis == Axis::state ? r.contract->state : input_format(spec, *r.contract);
    add(spec, spec.axis != Axis::whole, format);
  }
  for (const TensorSpec& spec : signature.outputs)
    add(spec, spec.axis != Axis::whole, device_format(spec, *r.contract));
  cost.bytes -= of.idle * (on_device ? bytes_of(r.contract->input) : 4);
  cost.operations = r.c.B * of.operations;
  cost.operands = operands_of(*r.contract);
  if (of.chunk.heads > 0) {
    const auto parts = static_cast<double>(one.chunk * of.chunk.heads);
    cost.token_operations = static_cast<double>(of.chunk.operations) / parts;
    cost.token_bytes = static_cast<double>(of.chunk.state_bytes) / parts +
                       static_cast<double>(of.chunk.token_bytes) / static_cast<double>(of.chunk.heads);
  }
  return cost;
}

std::unique_ptr<WholeCall> TensorSystem::whole_call(const Resolved& r, int threads) const {
  require_one_call(r);
  return std::make_unique<TensorCall>(r, *this, threads);
}

}  // namespace samestate
