#pragma once

#include <map>
#include <string>

#include "oracles/limits.h"
#include "oracles/systems/last_axis.h"
#include "oracles/systems/operator.h"
#include "oracles/verdict.h"

/// How one run of an operator is judged: every element of every output is compared with the float64 oracle,
/// within the running error of the form that ran.
namespace samestate {

/// The expected outputs for one sequence, and the tolerance.
struct OperatorOracle {
  Tensors<double> exact;
  /// Infinite if nothing can be said (a decision that the kernel's error may turn).
  Tensors<double> tolerance;
  /// [rows, columns] elements that may be NaN or infinite, because they or values that they are computed from
  /// may exceed the contract's range; an output without an entry has none.
  Tensors<bool> overflows;
  /// The contract keeps 16 bits, or a product in between rounds its operands. For a form without products
  /// tf32 is the same as fp32.
  bool points = false;
  Tensors<bool> undecided;  ///< [rows, 1] rows of tokens for which a correct kernel may make another choice
  std::map<std::string, LastAxis, std::less<>> axes;   ///< last axes of the outputs; columns by default
  std::map<std::string, Format, std::less<>> formats;  ///< those of outputs that are not in the contract's

  /// The place of an element of an output, without its sequence.
  [[nodiscard]] Location place(std::string_view output, Index row, Index column) const;
  [[nodiscard]] bool may_overflow(std::string_view output, Index row, Index column) const;
  [[nodiscard]] bool row_may_overflow(std::string_view output, Index row) const;
  /// The format in which a kernel writes an output, for which `usual` stands where no entry says otherwise.
  [[nodiscard]] Format format(std::string_view output, Format usual) const;
};

/// Oracle and tolerances of one sequence, evaluated under `contract` in calls that end at `cuts`. Inputs are
/// as the kernel read them.
[[nodiscard]] OperatorOracle operator_oracle(const Operator& op, const Call& call,
                                             const Tensors<double>& inputs, const std::vector<Index>& cuts,
                                             const Contract& contract);

/// Compares every element that has a finite tolerance. A NaN or infinity where a number is expected fails,
/// unless the element may exceed the range. Vacuous if no element has a finite tolerance, everything expected
/// is zero, or every output's tolerance exceeds kVacuousOutput of its size (RMS). Elements without a
/// tolerance are left out and counted in the reason, which also names outputs whose own bound would be
/// vacuous.
[[nodiscard]] Judgement judge_operator(const Operator& op, const OperatorOracle& oracle,
                                       const Tensors<double>& actual);

}  // namespace samestate
