#include <string>
#include <vector>

#include "fuzz/mutants/operators/changed_call.h"
#include "oracles/systems/operator_twin.h"
#include "oracles/systems/scalars.h"

/// Roundings to 16 bit that no contract declares, in every operator: the reference in fp32 with one kind of results
/// stored, where the contract keeps 16 bit; the right kernel elsewhere.
namespace samestate::mutants {
namespace {

Call call_of(const OperatorArguments& arguments, const std::string& form) {
  Call call;
  call.form = form;
  call.tokens = arguments.tokens;
  call.chunk = arguments.chunk;
  for (const auto& [name, value] : arguments.parameters) call.parameters.emplace(name, value);
  return call;
}

/// Sequence b of the tensors that have a batch.
Tensors<Stochastic> sequence_of(const OperatorArguments& call, const Signature& signature, std::int64_t b) {
  Tensors<Stochastic> out;
  for (const TensorSpec& spec : signature.inputs) {
    const NamedTensor<const float>& x = call.input(spec.name);
    const bool batched = spec.axis != Axis::whole;
    Index rows = 1;
    for (std::size_t d = batched ? 1 : 0; d + 1 < x.shape.size(); ++d) rows *= x.shape[d];
    const Index columns = x.shape.empty() ? 1 : x.shape.back();
    Matrix<Stochastic> values(rows, columns);
    const float* from = x.data + (batched ? b * rows * columns : 0);
    for (Index i = 0; i < values.size(); ++i) values.data()[i] = Stochastic(static_cast<double>(from[i]));
    out.emplace(spec.name, std::move(values));
  }
  return out;
}

Outcome evaluate_planted(const Operator& op, const std::string& form, const OperatorArguments& arguments,
                         const Contract& contract, Planted planted) {
  const Call call = call_of(arguments, form);
  const Signature signature = op.signature(call);
  SampledModel model = SampledModel::jitter(contract, 3, 1);
  model.planted = planted;
  for (std::int64_t b = 0; b < arguments.batch; ++b) {
    const SamplingScope scope(model);
    for (const auto& [name, x] : op.stochastic(call, sequence_of(arguments, signature, b))) {
      float* to = arguments.output(name).data + b * x.size();
      for (Index i = 0; i < x.size(); ++i)
        to[i] = static_cast<float>(round_to(x.data()[i].value(), contract.output));
    }
  }
  return {};
}

}  // namespace

std::vector<Mutant> undeclared_rounding_mutants() {
  struct Fault {
    const char* name;
    const char* summary;
    Planted planted;
  };
  static constexpr Fault kFaults[] = {
      {"sums_kept_in_16_bit", "in 16 bit every sum is kept in it while it is added up", Planted::partial},
      {"functions_in_16_bit", "in 16 bit exponentials, logarithms and roots are stored in it, undeclared",
       Planted::functions},
      {"quotients_in_16_bit", "in 16 bit quotients are stored in it, undeclared", Planted::quotients}};
  std::vector<Mutant> out;
  for (const OperatorKernel& right : operator_kernels()) {
    const Operator* op = find_operator(right.system);
    for (const Fault& fault : kFaults) {
      out.push_back(operator_mutant(
          right, "F", fault.name, fault.summary,
          [&right, op, planted = fault.planted](const OperatorArguments& call, const Contract& contract) {
            if (SampledModel::twin(contract).kept == Format::none) return right.run(call, contract);
            return evaluate_planted(*op, right.form, call, contract, planted);
          }));
    }
  }
  return out;
}

}  // namespace samestate::mutants
