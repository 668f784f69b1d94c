#pragma once

#include "oracles/systems/judge_operator.h"

/// The twin of an operator: the reference of the form that ran, rounded to nearest at its rounding points and exact between
/// (bounds_operators.md 4). A kernel that has these points is the twin but for the values that fp32 takes across a tie. One
/// that leaves points out, as a contract lets it, is not; so the twin acquits and does not accuse.
namespace samestate {

/// One sequence, evaluated in calls ending at `cuts`, under a contract that keeps 16 bit.
struct TwinSubject {
  const Operator& op;
  const Call& call;
  const Tensors<double>& inputs;
  const std::vector<Index>& cuts;
  const Contract& contract;
  const OperatorOracle& oracle;
};

/// Outputs as the twin has them before they are written in their format.
[[nodiscard]] Tensors<double> twin_values(const TwinSubject& of);

/// The share of roundings that a kernel does not have in common with a twin, by row of one output:
///   rho_r = |x_r - t_r|^2 / (|x_r - y_r|^2 + |t_r - y_r|^2),
/// 0: the same; near 1: independent ones; v / (2 s + v): one more of variance v beside s. -1 where nothing is rounded
/// to 16 bit: neither error exceeds kTwinOwnError of the row.
[[nodiscard]] Vector<double> unshared(const Matrix<double>& kernel, const Matrix<double>& twin,
                                      const Matrix<double>& exact);

/// Whether the kernel's outputs are its twin's but for single roundings: the mean of rho over the rows of an output at
/// most kTwinSame, no row above kTwinRow, no element off by more than kTwinElement times the RMS of the twin's errors in
/// its row. Such a kernel belongs to the population of the contract's kernels: its statistics are the twin's own, and
/// nothing has to be drawn to know it. Rows of undecided tokens may be others (another choice is right) but one at least
/// of all rows is the twin's. Verdict pass, or vacuous where it is another kernel or all that is expected is zero; gate
/// "twin"; ratio the largest mean over its limit.
[[nodiscard]] Judgement judge_operator_twin(const TwinSubject& of, const Tensors<double>& actual);

}  // namespace samestate
