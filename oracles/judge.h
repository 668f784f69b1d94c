#pragma once

#include <string>

#include "oracles/limits.h"
#include "oracles/path.h"
#include "oracles/verdict.h"

/// How one head of a run is judged (DESIGN 5, BOUNDS 7): the tolerances that follow from its data, and the
/// gates.
namespace samestate {

/// Everything that the gates need for one head on one path: the oracle's results and the tolerances.
struct HeadOracle {
  Trajectory<double> exact;  ///< float64 oracle
  Policy policy;
  Vector<double> row;        ///< [T] min(lambda Bp + Bc + R + bias, hard)
  Vector<double> row_hard;   ///< [T] worst case: no rounding explains a larger error
  Vector<double> rms;        ///< [T] predicted RMS error of a row, for head and twin gates
  Vector<double> state_rms;  ///< [dk] the same for a row of the final state, for the twin gate
  Vector<double> repeated =
      {};  ///< [T] the part of it that repeated operands add; not for the twin, which has the same roundings
  Vector<double> bias =
      {};  ///< [T] the part of it that truncated operands add on average (truncation_bias); empty if there is
           ///< none
  double state = 0.0;  ///< Frobenius tolerance of the final state
  double state_hard = 0.0;
  double largest = 0.0;  ///< largest magnitude of any intermediate value, for the range gate
  bool vacuous = false;
  std::string why_vacuous;
  bool overflow_expected = false;  ///< G0: an intermediate value exceeds the contract's range
};

/// The oracle's results and tolerances for `x` evaluated on `path` under `contract`. With `l2norm` the kernel
/// normalises q and k itself (x holds the exact result).
[[nodiscard]] HeadOracle oracle_of(const Sequence<double>& x, const Path& path, const Contract& contract,
                                   const Family& family, bool l2norm);

/// The data that judge_exact compares with: the exact run and the largest intermediate value, without
/// tolerances.
[[nodiscard]] HeadOracle exact_oracle_of(const Sequence<double>& x, const Path& path,
                                         const Contract& contract, const Family& family, bool l2norm);

/// Applies gates G0-G4 and GV of BOUNDS 7 to one head. o: [T, dv]; state: [dk, dv]. A vacuous run never
/// passes; a run that exceeds the worst-case bound fails even if the statistical bound is vacuous.
[[nodiscard]] Judgement judge_head(const HeadOracle& oracle, const Matrix<double>& o,
                                   const Matrix<double>& state);

/// For exact regimes: compares bit for bit, without a tolerance, except for the sign of zero. Vacuous if the
/// oracle itself would have to round in the contract's formats.
[[nodiscard]] Judgement judge_exact(const HeadOracle& oracle, const Contract& contract,
                                    const Matrix<double>& o, const Matrix<double>& state);

/// The runs that the twin gate needs for one head in addition to the kernel's output.
struct TwinRuns {
  Matrix<double> twin;  ///< [T, dv] the CPU source under the contract, with its accumulator emulated
  /// [T, dv] the same with the other accumulator: sums in another order, everything else alike
  Matrix<double> reordered;
  /// [T] RMS error due to fp32 sums alone: the bound under sums_only(contract).
  Vector<double> order;
  /// Errors share few directions, so their RMS is a statistic of few numbers.
  bool repeated_keys = false;
  bool of_states = false;  ///< the rows are those of a final state and have no order in time
};

/// The twin gates (BOUNDS 10.3) on one head, with d the distance of kernel and twin: median d/B <=
/// kTwinMedian, max d/B <= 2 sqrt(3), and the ratio of the two RMS errors against the oracle within 1 +-
/// kTwinRms (tf32: the wider limits; repeated keys: not judged). Each refinement allows for something that a
/// correct kernel does:
/// - The RMS errors are those of e / B, so that a few rows with large errors do not dominate the head.
/// - Only rows in which B is at least kTwinMargin times `order` count: in the others the order of the sums
///   makes up all of the error, and that order is free.
/// - If one rounding dominates a row and falls the other way, it moves the row by twice the half ulp that B
///   counts divided by sqrt(3): hence 2 sqrt(3) for a single row, whereas BOUNDS has 1.5 from rows with many
///   comparable roundings.
/// - A rounding that falls the other way changes the state, and with it later roundings: with long memory or
///   ill-conditioned keys the twin drifts from itself when only its sums are reordered. No limit is below
///   kTwinSpread times that drift (for the RMS: 2 (s^2 + s / sqrt(rows)), where s is the RMS of the drift
///   over that of the error, since an independent part of size s moves a norm that much; `order` over the
///   error is such a part too).
/// - A rounding that all later rows inherit makes each of them differ by a multiple of it: if the first
///   kTwinTurned rows equal the twin's and the others differ in fewer directions than that, the median is no
///   statistic. For a state, whose rows all come after such a rounding, the criterion is fewer than
///   kTwinTurnedOfStates of the directions of the twin's errors.
/// Unsupported if fewer than kTwinTokens such rows or kTwinElements elements are left.
[[nodiscard]] Judgement judge_twin(const HeadOracle& oracle, const Contract& contract, const TwinRuns& runs,
                                   const Matrix<double>& o);

/// Two runs of one head that must agree (BOUNDS 10.2): row by row within the sum of their tolerances. Vacuous
/// if either bound is.
[[nodiscard]] Judgement judge_pair(const Matrix<double>& o1, const Vector<double>& tolerance1,
                                   const Matrix<double>& o2, const Vector<double>& tolerance2);

/// Keeps the worse of two judgements: a failure before vacuous before a pass, then the larger ratio. Each
/// per-gate ratio becomes the larger of both, and rows are summed.
void merge(Judgement& worst, const Judgement& other);

}  // namespace samestate
