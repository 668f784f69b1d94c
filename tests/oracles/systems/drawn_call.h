#pragma once

#include <cmath>
#include <map>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "oracles/contracts.h"
#include "oracles/rounding.h"
#include "oracles/systems/judge_operator.h"
#include "oracles/systems/operator.h"
#include "oracles/systems/operator_twin.h"
#include "oracles/systems/scalars.h"

/// Calls of any operator with drawn data, for tests of the judges.
namespace samestate {

/// A call of `tokens` in chunks of four; other sizes than `sizes` are the standard ones.
[[nodiscard]] inline Call call_of(const Operator& op, std::string_view form, Index tokens,
                                  const std::map<std::string, Index>& sizes = {}) {
  Call call;
  call.form = form;
  call.tokens = tokens;
  call.chunk = 4;
  for (const Parameter& p : op.parameters) call.parameters.emplace(p.name, p.standard);
  for (const auto& [size, value] : sizes) call.parameters.find(size)->second = value;
  return call;
}

/// Its inputs: normal, weights divided by the root of their width, strengths in (0, 1), states zero, masks ones or, where
/// `masked`, some zeros; each a number of the contract's input format.
[[nodiscard]] inline Tensors<double> drawn_inputs(const Operator& op, const Call& call,
                                                  const Contract& contract, std::uint64_t seed, bool masked) {
  Tensors<double> inputs;
  std::mt19937_64 engine(seed);
  std::normal_distribution<double> normal;
  for (const TensorSpec& spec : op.signature(call).inputs) {
    const bool weight = spec.content == Content::weight;
    const double size = weight ? 1.0 / std::sqrt(static_cast<double>(spec.columns())) : 1.0;
    inputs.emplace(spec.name, Matrix<double>::NullaryExpr(spec.rows(), spec.columns(), [&] {
                     if (spec.axis == Axis::state) return 0.0;
                     if (spec.content == Content::mask) return masked && normal(engine) < -1.0 ? 0.0 : 1.0;
                     const double x = size * normal(engine);
                     return round_to(spec.content == Content::strength ? 1.0 / (1.0 + std::exp(-x)) : x,
                                     contract.input);
                   }));
  }
  return inputs;
}

/// A call with its data, and the values with which a kernel of it is compared.
struct DrawnSubject {
  const Operator& op;
  const Contract& contract;
  Call call;
  Tensors<double> inputs;
  std::vector<Index> cuts;
  OperatorOracle oracle;

  DrawnSubject(const char* system, const char* form, Index tokens, const std::map<std::string, Index>& sizes,
               const char* under, std::uint64_t seed, std::vector<Index> ends = {})
      : op(*find_operator(system)),
        contract(contract_named(under)),
        call(call_of(op, form, tokens, sizes)),
        inputs(drawn_inputs(op, call, contract, seed, false)),
        cuts(std::move(ends)) {
    judge();
  }
  /// Again, of other data.
  void judge() { oracle = operator_oracle(op, call, inputs, cuts, contract); }
  [[nodiscard]] TwinSubject subject() const { return {op, call, inputs, cuts, contract, oracle}; }
};

/// A kernel of it: the reference with the roundings of fp32 drawn, number `n`, so that its sums have an order of their own, without
/// the points and in the order of `variant`, with a rounding that no contract has.
[[nodiscard]] inline Tensors<double> drawn_kernel(const DrawnSubject& of, const TwinVariant& variant = {},
                                                  Planted planted = Planted::none, int n = 1) {
  SampledModel model = SampledModel::jitter(of.contract, 91, n);
  model.skipped = &variant.skipped;
  model.softmax = variant.softmax;
  model.planted = planted;
  const SamplingScope scope(model);
  Tensors<double> out;
  for (const auto& [name, x] : evaluate(of.op.stochastic, of.op, of.call, of.inputs, of.cuts)) {
    out.emplace(name,
                x.unaryExpr([&](const Stochastic& e) { return round_to(e.value(), of.contract.output); }));
  }
  return out;
}

}  // namespace samestate
