#pragma once

#include <string>

#include "oracles/path.h"
#include "oracles/verdict.h"

/// How one head of a run is judged (DESIGN 5, BOUNDS 7): the tolerances that follow from its data, and the
/// gates.
namespace samestate {

/// Everything the gates need of one head on one path: the oracle and the tolerances.
struct HeadOracle {
  Trajectory<double> exact;  ///< float64 oracle
  Policy policy;
  Vector<double> row;              ///< [T] min(lambda Bp + Bc + R, hard)
  Vector<double> row_hard;         ///< [T] worst case: beyond it no rounding explains the error
  Vector<double> output_rounding;  ///< [T] half an ulp of the output format, as a row norm
  Vector<double> rms;              ///< [T] predicted RMS error of a row, for head and twin gates
  double state = 0.0;              ///< Frobenius tolerance of the final state
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

/// Gates G0-G4 and GV of BOUNDS 7 on one head. o: [T, dv]; state: [dk, dv]. Never passes a vacuous run; a run
/// that breaks the worst-case bound fails even where the statistical one is vacuous.
[[nodiscard]] Judgement judge_head(const HeadOracle& oracle, const Matrix<double>& o,
                                   const Matrix<double>& state);

/// Exact regimes: bit for bit, no tolerance, the sign of zero apart. Vacuous where the oracle itself needs
/// rounding in the contract's formats.
[[nodiscard]] Judgement judge_exact(const HeadOracle& oracle, const Contract& contract,
                                    const Matrix<double>& o, const Matrix<double>& state);

/// The twin gates (BOUNDS 10.3) on one head: median d/B <= 0.15 (tf32 0.25), max d/B <= 1.5, and the ratio of
/// the two RMS errors against the oracle in [0.97, 1.03] (tf32 [0.9, 1.1]), where d is the distance of kernel
/// and twin. Two refinements:
/// - Only rows count where B is at least kTwinMargin times `order`, [T], the RMS error that fp32 sums make by
/// themselves (the bound
///   under sums_only(contract)): elsewhere the order of the sums is all there is, and it is free.
/// - Sums that differ in the last place make a rounding fall the other way now and then, and what it moves
/// stays in the state: the
///   limit on the median is at least sqrt(sqrt(12) order / B), the d / B that such flips make.
/// - Where rounding the output is all that B holds (recurrent form, 16-bit output), a value next to a tie
/// moves a row by a whole ulp,
///   2 R = 2 sqrt(3) B, in a correct kernel: the limit on a single row is then 2 R, and median and RMS carry
///   the gate.
/// Unsupported where fewer than kTwinTokens such rows or kTwinElements elements are left, since a single
/// rounding that falls the other way moves these statistics.
[[nodiscard]] Judgement judge_twin(const HeadOracle& oracle, const Contract& contract,
                                   const Vector<double>& order, const Matrix<double>& o,
                                   const Matrix<double>& twin);
inline constexpr double kTwinMargin = 8.0;
inline constexpr Index kTwinTokens = 32;
inline constexpr Index kTwinElements = 1000;

/// Two runs of one head that must agree (BOUNDS 10.2): row by row within the sum of their tolerances. Vacuous
/// where either bound is.
[[nodiscard]] Judgement judge_pair(const Matrix<double>& o1, const Vector<double>& tolerance1,
                                   const Matrix<double>& o2, const Vector<double>& tolerance2);

/// Keeps the worse of two judgements: a failure before vacuous before a pass, then the larger ratio; the
/// per-gate ratios are the largest of both, rows are summed.
void merge(Judgement& worst, const Judgement& other);

}  // namespace samestate
