#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "harness/laws/shared.h"
#include "harness/run/law_subject.h"
#include "harness/systems/tensor_system.h"

/// The laws of systems of named tensors, each on a case that has what its row of the table asks for
/// (harness/laws/laws.cpp), and their comparison. They compare runs of one kernel within the sum of their
/// running errors, or, under a contract that keeps 16 bits, where running errors say nothing, within the sum
/// of the errors of drawn roundings.
namespace samestate::tensor_laws_detail {

using Change = TensorLawComparison::Change;

/// The outputs of one sequence of a run, and their oracle.
struct Side {
  const Tensors<double>& outputs;
  const OperatorOracle& oracle;
};

/// Combines the judgements of many comparisons.
class Comparison {
 public:
  explicit Comparison(TensorLawTrace* trace) : trace_(trace) {}

  /// Names the two runs in words; `place` is as in TensorLawComparison. Call it before the first add.
  void begin(Change change, std::string first, std::string second, Index place = -1);
  /// Compares the rows [begin, rows) of an output of sequence b in the two runs, within the sum of their
  /// tolerances.
  void add(Index b, const std::string& name, Index rows, const Side& first, const Side& second,
           Index begin = 0);
  /// The same for all values of `name`, where each row holds one value a token and belongs to a head: a value near zero
  /// is then compared at the size of the others of its head.
  void add_by_head(Index b, const std::string& name, const Side& first, const Side& second);
  /// Returns the combined judgement; `what` says in words what was compared.
  [[nodiscard]] Judgement take(const std::string& what);

 private:
  TensorLawTrace* trace_;
  bool by_head_ = false;  ///< rows are heads, and columns are tokens
  Judgement worst_;
  std::int64_t compared_ = 0;
  std::int64_t not_finite_ = 0;  ///< elements that are finite in neither run
  Judgement first_not_finite_;   ///< the first comparison with such an element
  std::string where_not_finite_;
  double squares_ = 0.0, bounds_ = 0.0;
  std::string where_;
  std::string
      doubt_;  ///< for contracts without rounding points: a row whose bounds are wide and whose difference is
               ///< not small
};

/// Returns the oracle of sequence b, evaluated in calls that end at `cuts`.
[[nodiscard]] OperatorOracle oracle_of(const TensorSubject& s, const std::vector<CaseTensor>& inputs, Index b,
                                       const std::vector<Index>& cuts);
/// Returns the oracles of all sequences of the batch, for a run that is compared with several others.
[[nodiscard]] std::vector<OperatorOracle> oracles_of(const TensorSubject& s,
                                                     const std::vector<CaseTensor>& inputs,
                                                     const std::vector<Index>& cuts);

/// Returns cuts near the beginning, in the middle and at the end of a sequence.
[[nodiscard]] std::vector<Index> cuts_worth_trying(Index tokens, Index chunk);

/// Returns the case with B sequences of T tokens.
[[nodiscard]] Resolved resized(const Resolved& r, std::int64_t B, std::int64_t T);

/// Returns the tensor of that name; null if the call has none.
[[nodiscard]] CaseTensor* named(std::vector<CaseTensor>& tensors, std::string_view name);

/// Returns the case of a backward pass with other tokens, with an initial state, or with other cotangents given.
[[nodiscard]] Resolved changed(const Resolved& r, Index tokens, bool state, std::string_view cotangent);

/// Returns the oracle of sequence b of another case than the subject's.
[[nodiscard]] OperatorOracle oracle_as(const TensorSubject& s, const Resolved& r,
                                       const std::vector<CaseTensor>& inputs, Index b);

/// Returns the forward call whose gradients the inputs of a backward pass ask for.
[[nodiscard]] Batch forward_call(const Resolved& r, std::vector<CaseTensor> inputs);

/// EQ-03, P-09: cutting anywhere and carrying the states gives the same as one pass.
[[nodiscard]] Judgement split(const TensorSubject& s);

/// P-07: outputs before t do not depend on tokens from t on.
[[nodiscard]] Judgement causality(const TensorSubject& s);

/// P-08: the rows of a batch are independent.
[[nodiscard]] Judgement batch_permutation(const TensorSubject& s);

/// M25: a request that starts from a reset state or cache gives the same after another request as before it.
[[nodiscard]] Judgement reset(const TensorSubject& s);

/// M24-M29: requests in slots, decoded together, advanced, forked, rejected and started again in any order.
[[nodiscard]] Judgement serving(const TensorSubject& s);

/// M25, M29: only the rows of the slot are read and written in a pool, whichever slot it is.
[[nodiscard]] Judgement pool(const TensorSubject& s);

/// M27, M37: packed sequences of different lengths give the same as each of them alone.
[[nodiscard]] Judgement packing(const TensorSubject& s);

/// Gradients of a sequence that is cut anywhere, where the second part hands the gradient of the state between them
/// back to the first, are those of one call.
[[nodiscard]] Judgement backward_split(const TensorSubject& s);

/// Gradients from a token on do not depend on the cotangents of outputs before it.
[[nodiscard]] Judgement backward_causality(const TensorSubject& s);

/// Gradients are linear in the cotangents: they double with them, and those of both outputs are the sum of those of
/// each.
[[nodiscard]] Judgement backward_linearity(const TensorSubject& s);

/// Gradients add up as Euler's theorem on homogeneous functions demands: the outputs do not change, or change in
/// proportion, when q, k, v, beta and the state are scaled in ways that belong together.
[[nodiscard]] Judgement backward_homogeneity(const TensorSubject& s);

/// Tokens between others that write nothing, do not decay and have no cotangent change no other gradient. They have
/// zero gradients of q, k and v, and the gradient of g of the token behind them.
[[nodiscard]] Judgement backward_no_op(const TensorSubject& s);

/// Behind a token with alpha = 0 no cotangent changes a gradient before it, nor that of the initial state, bit for bit;
/// its own gradient of g is 0. In chunks, where gradients of g are sums over a chunk, they are compared within their
/// tolerance.
[[nodiscard]] Judgement backward_reset(const TensorSubject& s);

}  // namespace samestate::tensor_laws_detail
