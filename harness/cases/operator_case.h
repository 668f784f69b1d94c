#pragma once

#include <vector>

#include "harness/cases/case_line.h"
#include "oracles/systems/operator.h"

namespace samestate {

/// A system of the table of operators: the rest of the case line then goes by its row.
[[nodiscard]] bool is_operator_case(const Case& c);

/// The case's call of its operator over the whole sequence; under form=decode with the form that `native`
/// names.
[[nodiscard]] Call call_of(const Case& c, std::string_view native);

/// Where the calls of a case end, the last excepted: form=decode evaluates `prefill` tokens, then one a call.
[[nodiscard]] std::vector<Index> cuts_of(const Case& c);

/// Throws Error that names the key or value, the limit and the remedy: form, sizes, contract or regime that
/// the operator does not have.
void check_operator_case(const Case& c);

/// The format whose values an input holds: the contract's for data and weights, fp32 for the rest.
[[nodiscard]] Format input_format(const TensorSpec& spec, const Contract& contract);

/// One tensor of a case's inputs, [B, ...] or, where it belongs to no sequence, [...].
struct OperatorTensor {
  TensorSpec spec;
  bool batched = false;
  std::vector<float> data;
};

/// The inputs of a case, each element a function of (seed, tensor, coordinates), rounded to the contract's
/// input format where it is data or a weight. Throws Error (check_operator_case).
[[nodiscard]] std::vector<OperatorTensor> operator_inputs(const Case& c);

/// Sequence b of those inputs as the oracle reads them.
[[nodiscard]] Tensors<double> operator_sequence(const std::vector<OperatorTensor>& inputs, Index b);

/// A named family of inputs of operators.
struct OperatorRegime {
  std::string_view name;
  std::string_view summary;
};
[[nodiscard]] std::span<const OperatorRegime> operator_regimes();

}  // namespace samestate
