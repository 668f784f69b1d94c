#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "oracles/bounds/softmax_order.h"
#include "oracles/judge_policy.h"
#include "oracles/systems/judge_operator.h"

/// The twin of an operator: the reference of the form that ran, rounded to nearest at its rounding points and exact between.
/// A contract says where a kernel may store in 16 bit, and a right kernel stores at some of these places: its twin is the
/// nearest among those of all choices of places (bounds_operators.md 4).
namespace samestate {

/// Which of the twins.
struct TwinVariant {
  SkippedPoints skipped;     ///< points that the kernel does not have
  SoftmaxOrder softmax;      ///< in which it takes its keys
  bool sums_stored = false;  ///< weights are divided by the sum of what was stored

  /// What differs from the twin of all points, in words; empty: nothing.
  [[nodiscard]] std::string words() const;
  friend bool operator==(const TwinVariant& x, const TwinVariant& y) {
    return x.skipped.points == y.skipped.points && x.softmax == y.softmax && x.sums_stored == y.sums_stored;
  }
};

/// One sequence, evaluated in calls ending at `cuts`, under a contract that keeps 16 bit.
struct TwinSubject {
  const Operator& op;
  const Call& call;
  const Tensors<double>& inputs;
  const std::vector<Index>& cuts;
  const Contract& contract;
  const OperatorOracle& oracle;
  /// Twins that other sequences of the same run were found to have, the last found first, and what is found here: a kernel has
  /// the same points in all of them, and where a tie of one is turned early its twin is not the nearest.
  std::vector<TwinVariant>* known = nullptr;
};

/// Outputs as the twin has them before they are written in their format; `met` collects the points on the way.
[[nodiscard]] Tensors<double> twin_values(const TwinSubject& of, const TwinVariant& variant,
                                          SkippedPoints* met = nullptr);

/// How far the roundings of working precision may take a kernel of the twin's points from it: the running error, begun
/// anew at each point where all that a kernel may have there is rounded to one number.
struct TwinBound {
  Tensors<double> value;
  Tensors<double> slack;
  Tensors<bool> undecided;  ///< [rows, 1] of tokens whose choice these roundings may turn
};
[[nodiscard]] TwinBound twin_bound(const TwinSubject& of, const TwinVariant& variant);

/// A variant and how far it is: means of rho over rows.
struct TwinDistance {
  TwinVariant variant;
  Tensors<double> value;
  double most = 0.0;   ///< of the output where it is largest
  double total = 0.0;  ///< of all outputs
};

/// The twins that a kernel may have.
class TwinSearch {
 public:
  /// All live as long as the search.
  TwinSearch(const TwinSubject& of, const Tensors<double>& actual, const JudgePolicy& policy);
  /// Offers those that are known, however far, and then those within kOperatorTwinSame, until one is accepted: first that of all
  /// points, then those without any, without all that are declared alike or in one table (a stage that a kernel keeps in fp32), without a single one, and what comes
  /// nearer of their combinations. In the end all of one change and the nearest others.
  void run(const std::function<bool(const TwinDistance&)>& accepts);
  [[nodiscard]] const TwinDistance& nearest() const { return nearest_; }
  [[nodiscard]] int evaluated() const { return evaluated_; }

 private:
  [[nodiscard]] TwinDistance evaluate_variant(TwinVariant variant, SkippedPoints* met);
  [[nodiscard]] std::vector<SkippedPoints> moves() const;
  /// Changes of the order in which a softmax is taken, each alone.
  [[nodiscard]] std::vector<std::function<void(TwinVariant&)>> orders() const;
  /// Of a softmax whose keys are taken in independent parts of whole tiles (flash decoding), every number and length of parts.
  [[nodiscard]] std::vector<TwinVariant> in_parts() const;
  /// Of a kernel that keeps most in fp32: from the twin without any point, one is put back after another that comes nearer. True
  /// where one was accepted; what came nearest of each round joins `all`.
  [[nodiscard]] bool stores_few(const std::function<bool(const TwinDistance&)>& accepts, int most,
                                std::vector<TwinDistance>& all);
  /// Returns what may have to be changed together: every subset of JudgePolicy::twin_subsets points or fewer, of more every pair,
  /// left out; and each point with each order.
  [[nodiscard]] std::vector<TwinVariant> together() const;

  const TwinSubject& of_;
  const Tensors<double>& actual_;
  const JudgePolicy& policy_;
  SkippedPoints met_;
  TwinDistance nearest_;
  int evaluated_ = 0;
};

struct TwinJudgement {
  Judgement judgement;
  /// As near in every row and element as sums in another order bring it, so that the kernel is of the population of the
  /// contract's kernels, and nothing has to be drawn to know it.
  bool same = false;
  SoftmaxOrder softmax;  ///< of the twin under which it passes
};

/// The kernel against the nearest twins. An element beyond the twin's bound fails, and so does an output whose share of
/// roundings that are not the twin's is above its limit, of kOperatorTwinLeast rows or more whose errors are carried by its square of elements: at least kOperatorTwinShare,
/// kOperatorTwinRows rows altogether, and kOperatorTwinSpread times the largest share of twins whose sums of working
/// precision are drawn. The best of the nearest twins decides. Gates: "twin element" and "twin share". Vacuous where
/// nothing was compared or the twin may be anything.
[[nodiscard]] TwinJudgement judge_operator_twin(const TwinSubject& of, const Tensors<double>& actual,
                                                std::uint64_t seed, const JudgePolicy& policy);

}  // namespace samestate
