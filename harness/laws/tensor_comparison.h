#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "harness/laws/shared.h"
#include "harness/run/law_subject.h"
#include "harness/systems/tensor_system.h"

/// The laws of systems of named tensors, each on a case that has what its row of the table asks for (harness/laws/laws.cpp),
/// and what they compare: runs of one kernel of named tensors, within the sum of their running errors; under a contract that keeps
/// 16 bit, where these say nothing, within that of the errors of drawn roundings.
namespace samestate::tensor_laws_detail {

using Change = TensorLawComparison::Change;

/// The outputs of one sequence of a run, and what they are held against.
struct Side {
  const Tensors<double>& outputs;
  const OperatorOracle& oracle;
};

/// Judgements of many comparisons, as one.
class Comparison {
 public:
  explicit Comparison(TensorLawTrace* trace) : trace_(trace) {}

  /// Two runs, in words; `place` as in TensorLawComparison. Before the first add.
  void begin(Change change, std::string first, std::string second, Index place = -1);
  /// The rows [0, rows) of an output of sequence b of the two, within the sum of their tolerances.
  void add(Index b, const std::string& name, Index rows, const Side& first, const Side& second);
  /// `what` was compared, in words.
  [[nodiscard]] Judgement take(const std::string& what);

 private:
  TensorLawTrace* trace_;
  Judgement worst_;
  std::int64_t compared_ = 0;
  std::int64_t not_finite_ = 0;  ///< elements that are finite in neither run
  Judgement first_not_finite_;   ///< of them
  std::string where_not_finite_;
  double squares_ = 0.0, bounds_ = 0.0;
  std::string where_;
  std::string
      doubt_;  ///< of contracts without rounding points, a row whose bounds are wide and whose difference is not small
};

/// Of sequence b evaluated in calls ending at `cuts`.
[[nodiscard]] OperatorOracle oracle_of(const TensorSubject& s, const std::vector<CaseTensor>& inputs, Index b,
                                       const std::vector<Index>& cuts);
/// Of each sequence of the batch: for a run that several others are held against.
[[nodiscard]] std::vector<OperatorOracle> oracles_of(const TensorSubject& s,
                                                     const std::vector<CaseTensor>& inputs,
                                                     const std::vector<Index>& cuts);

/// The case with B sequences of T tokens.
[[nodiscard]] Resolved resized(const Resolved& r, std::int64_t B, std::int64_t T);

/// EQ-03, P-09: any cut with the states carried gives one pass.
[[nodiscard]] Judgement split(const TensorSubject& s);

/// P-07: outputs before t do not depend on tokens from t on.
[[nodiscard]] Judgement causality(const TensorSubject& s);

/// P-08: rows of a batch do not meet.
[[nodiscard]] Judgement batch_permutation(const TensorSubject& s);

/// M25: a request from a reset state or cache is the same after another one as before it.
[[nodiscard]] Judgement reset(const TensorSubject& s);

/// M24-M29: requests in slots, decoded together, advanced, forked, rejected and begun again in any order.
[[nodiscard]] Judgement serving(const TensorSubject& s);

/// M25, M29: of a pool the rows of the slot alone are read and written, whichever slot it is.
[[nodiscard]] Judgement pool(const TensorSubject& s);

/// M27, M37: sequences of different lengths end to end as one.
[[nodiscard]] Judgement packing(const TensorSubject& s);

}  // namespace samestate::tensor_laws_detail
