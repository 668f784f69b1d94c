#pragma once

#include <map>
#include <string>

#include "oracles/limits.h"
#include "oracles/systems/last_axis.h"
#include "oracles/systems/operator.h"
#include "oracles/verdict.h"

/// How one run of an operator is judged: every element of every output against the float64 oracle, within the
/// running error of the form that ran.
namespace samestate {

/// What the kernel should have returned for one sequence, and how far off it may be.
struct OperatorOracle {
  Tensors<double> exact;
  /// Infinite where nothing can be said (a decision within the kernel's error of turning).
  Tensors<double> tolerance;
  /// [rows, columns] elements that may be no number, since they or what they are made of may exceed the contract's range;
  /// none of an output that has no entry.
  Tensors<bool> overflows;
  /// The contract keeps 16 bit, or a product on the way rounds its operands. Of a form without products tf32 is fp32.
  bool points = false;
  Tensors<bool> undecided;  ///< [rows, 1] rows of tokens whose choice a correct kernel may take otherwise
  std::map<std::string, LastAxis, std::less<>> axes;  ///< of the outputs; columns where it has no entry

  /// Of an element of an output, without its sequence.
  [[nodiscard]] Location place(std::string_view output, Index row, Index column) const;
  [[nodiscard]] bool may_overflow(std::string_view output, Index row, Index column) const;
  [[nodiscard]] bool row_may_overflow(std::string_view output, Index row) const;
};

/// Oracle and tolerances of one sequence evaluated in calls ending at `cuts` under `contract`. Inputs are as
/// the kernel read them.
[[nodiscard]] OperatorOracle operator_oracle(const Operator& op, const Call& call,
                                             const Tensors<double>& inputs, const std::vector<Index>& cuts,
                                             const Contract& contract);

/// Elements of a finite tolerance against it. A NaN or infinity where a number is expected fails, unless
/// the range excuses it of that element. Vacuous where no element has a finite tolerance, everything expected is zero, or every output's tolerance exceeds
/// kVacuousOutput of its size (RMS). Elements without tolerance are left out and counted in the reason,
/// which also names outputs whose bound alone would be vacuous.
[[nodiscard]] Judgement judge_operator(const Operator& op, const OperatorOracle& oracle,
                                       const Tensors<double>& actual);

}  // namespace samestate
