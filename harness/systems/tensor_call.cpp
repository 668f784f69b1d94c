#include "harness/cases/case_cost.h"
#include "harness/run/whole_call.h"
#include "harness/systems/tensor_inputs.h"
#include "harness/systems/tensor_system.h"
#include "oracles/systems/input_format.h"

/// One call of a system of named tensors: what it costs, and its tensors for a clock.
namespace samestate {
namespace {

/// The format in which a tensor travels on a device.
Format output_format(const TensorSpec& spec, const Contract& contract) {
  if (spec.axis == Axis::state) return contract.state;
  return spec.axis == Axis::tokens ? contract.output : Format::fp32;
}

/// Of matrix products on operands of the contract's input format; none where no rate of it is measured.
Format operands_of(const Contract& contract) {
  if (contract.input == Format::bf16 || contract.input == Format::fp16) return Format::bf16;
  return contract.input == Format::fp32 ? contract.input : Format::none;
}

class TensorCall final : public WholeCall {
 public:
  TensorCall(const Resolved& r, const TensorSystem& system, int threads)
      : r_(r), system_(system), call_of_(system.call(r_.c, r_.c.form)), inputs_(tensor_inputs(r_)) {
    const Signature signature = system.row.signature(call_of_);
    outputs_.resize(signature.outputs.size());
    for (const CaseTensor& x : inputs_) input(x.spec.name, x.shape, x.data);
    specs_ = signature.outputs;
    for (std::size_t i = 0; i < specs_.size(); ++i) {
      std::vector<std::int64_t> shape(specs_[i].shape.begin(), specs_[i].shape.end());
      shape.insert(shape.begin(), r_.c.B);
      output(specs_[i].name, std::move(shape), outputs_[i]);
    }
    for (const auto& [name, value] : call_of_.parameters) call_.parameters.emplace_back(name, value);
    call_.batch = r_.c.B;
    call_.tokens = r_.c.T;
    call_.chunk = r_.c.chunk;
    call_.threads = threads;
    contract_ = *r_.contract;
  }

  [[nodiscard]] std::int64_t parts() const override { return r_.c.B; }

  [[nodiscard]] Judgement judge(std::int64_t part, const KernelChoice&) const override {
    Tensors<double> written;
    for (std::size_t i = 0; i < specs_.size(); ++i) {
      Matrix<double> x(specs_[i].rows(), specs_[i].columns());
      const float* from = outputs_[i].data() + part * x.size();
      for (Index e = 0; e < x.size(); ++e) x.data()[e] = static_cast<double>(from[e]);
      written.emplace(specs_[i].name, std::move(x));
    }
    Judgement j = judge_operator(
        system_.row, operator_oracle(system_.row, call_of_, sequence_of(inputs_, part), {}, contract_),
        written);
    j.worst.sequence = part;
    return j;
  }

 private:
  Resolved r_;
  const TensorSystem& system_;
  Call call_of_;
  std::vector<CaseTensor> inputs_;
  std::vector<TensorSpec> specs_;  ///< of the outputs
  std::vector<std::vector<float>> outputs_;
};

}  // namespace

CaseCost TensorSystem::cost(const Resolved& r, bool on_device) const {
  Call one = call(r.c, row.forms.front().name);
  const OperatorForm* form = row.form(one.form);
  if (form == nullptr || !form->chunked) one.chunk = 0;
  const Signature signature = row.signature(one);
  const Cost of = row.cost(one);
  CaseCost cost;
  const auto add = [&](const TensorSpec& spec, bool batched, Format format) {
    cost.bytes += (batched ? r.c.B : 1) * spec.size() * (on_device ? bytes_of(format) : 4);
  };
  for (const TensorSpec& spec : signature.inputs) {
    const Format format = spec.axis == Axis::state ? r.contract->state : input_format(spec, *r.contract);
    add(spec, spec.axis != Axis::whole, format);
  }
  for (const TensorSpec& spec : signature.outputs) add(spec, true, output_format(spec, *r.contract));
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
