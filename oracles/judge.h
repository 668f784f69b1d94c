#pragma once

#include <string>

#include "oracles/limits.h"
#include "oracles/path.h"
#include "oracles/verdict.h"

/// How one head of a run is judged (DESIGN 5, BOUNDS 7): the tolerances that follow from its data, and the
/// gates.
namespace samestate {

/// Everything the gates need of one head on one path: the oracle and the tolerances.
struct HeadOracle {
  Trajectory<double> exact;  ///< float64 oracle
  Policy policy;
  Vector<double> row;        ///< [T] min(lambda Bp + Bc + R + bias, hard)
  Vector<double> row_hard;   ///< [T] worst case: beyond it no rounding explains the error
  Vector<double> rms;        ///< [T] predicted RMS error of a row, for head and twin gates
  Vector<double> state_rms;  ///< [dk] the same of a row of the final state, for the twin gate
  Vector<double> repeated =
      {};  ///< [T] beside it, of operands that repeat; not the twin's, which has the same roundings
  Vector<double> bias =
      {};              ///< [T] of it what cut operands take off in the mean (truncation_bias); empty: nothing
  double state = 0.0;  ///< Frobenius tolerance of the final state
  double state_hard = 0.0;
  double largest = 0.0;  ///< largest magnitude on the way, for the range gate
  bool vacuous = false;
  std::string why_vacuous;
  bool overflow_expected = false;  ///< G0: a value on the way exceeds the contract's range
};

/// Oracle and tolerances of `x` evaluated on `path` under `contract`. With `l2norm` the kernel normalises q
/// and k itself (x holds the exact result).
[[nodiscard]] HeadOracle oracle_of(const Sequence<double>& x, const Path& path, const Contract& contract,
                                   const Family& family, bool l2norm);

/// What judge_exact compares with: the exact run and the largest value on the way, without tolerances.
[[nodiscard]] HeadOracle exact_oracle_of(const Sequence<double>& x, const Path& path,
                                         const Contract& contract, const Family& family, bool l2norm);

/// Gates G0-G4 and GV of BOUNDS 7 on one head. o: [T, dv]; state: [dk, dv]. Never passes a vacuous run; a run
/// that breaks the worst-case bound fails even where the statistical one is vacuous.
[[nodiscard]] Judgement judge_head(const HeadOracle& oracle, const Matrix<double>& o,
                                   const Matrix<double>& state);

/// Exact regimes: bit for bit, no tolerance, the sign of zero apart. Vacuous where the oracle itself needs
/// rounding in the contract's formats.
[[nodiscard]] Judgement judge_exact(const HeadOracle& oracle, const Contract& contract,
                                    const Matrix<double>& o, const Matrix<double>& state);

/// What the twin gate needs of one head beside the kernel's output.
struct TwinRuns {
  Matrix<double> twin;  ///< [T, dv] the CPU source under the contract, its accumulator emulated
  /// [T, dv] the same with the other accumulator: sums in another order, all else alike.
  Matrix<double> reordered;
  /// [T] RMS error that fp32 sums make by themselves: the bound under sums_only(contract).
  Vector<double> order;
  /// Errors share few directions, so that their RMS is a statistic of few numbers.
  bool repeated_keys = false;
  bool of_states = false;  ///< the rows are those of a final state, in no order of time
};

/// The twin gates (BOUNDS 10.3) on one head, d the distance of kernel and twin: median d/B <= kTwinMedian, max
/// d/B <= 2 sqrt(3), and the ratio of the two RMS errors against the oracle in 1 +- kTwinRms (tf32: the wider
/// limits; repeated keys: not judged). Refinements, each for something that a correct kernel does:
/// - The RMS errors are those of e / B, so that a few rows of large error do not stand for the head.
/// - Only rows count where B is at least kTwinMargin times `order`: elsewhere the order of the sums is all
///   there is, and it is free.
/// - One rounding that dominates a row and falls the other way moves it by twice the half ulp that B counts
///   over sqrt(3): hence 2 sqrt(3) for a single row, where BOUNDS has 1.5 from rows of many comparable
///   roundings.
/// - A rounding that falls the other way changes the state, and with it later roundings: with long memory or
///   ill-conditioned keys the twin drifts from itself when only its sums are reordered. No limit is below
///   kTwinSpread times that drift (for the RMS: 2 (s^2 + s / sqrt(rows)), s its RMS over the error's, which is
///   how an independent part of size s moves a norm; `order` over the error is such a part too).
/// - One that all later rows hand on makes each of them differ by a multiple of it: where the first kTwinTurned rows are the
///   twin's own and the others differ in fewer directions than that, the median is no statistic. Of a state, all of whose
///   rows are behind it, less than kTwinTurnedOfStates of the directions of the twin's errors say so.
/// Unsupported where fewer than kTwinTokens such rows or kTwinElements elements are left.
[[nodiscard]] Judgement judge_twin(const HeadOracle& oracle, const Contract& contract, const TwinRuns& runs,
                                   const Matrix<double>& o);

/// Two runs of one head that must agree (BOUNDS 10.2): row by row within the sum of their tolerances. Vacuous
/// where either bound is.
[[nodiscard]] Judgement judge_pair(const Matrix<double>& o1, const Vector<double>& tolerance1,
                                   const Matrix<double>& o2, const Vector<double>& tolerance2);

/// Keeps the worse of two judgements: a failure before vacuous before a pass, then the larger ratio; the
/// per-gate ratios are the largest of both, rows are summed.
void merge(Judgement& worst, const Judgement& other);

}  // namespace samestate
