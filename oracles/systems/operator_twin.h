#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "oracles/bounds/softmax_order.h"
#include "oracles/judge_policy.h"
#include "oracles/systems/judge_operator.h"

/// The twin of an operator: the reference of the form that ran, rounded to nearest at its rounding points and
/// exact in between. A contract says where a kernel may store in 16 bits, and a correct kernel stores at some
/// of these places: its twin is the nearest among those of all choices of places (bounds_operators.md 4).
namespace samestate {

/// Selects one of the possible twins.
struct TwinVariant {
  SkippedPoints skipped;     ///< points that the kernel does not have
  SoftmaxOrder softmax;      ///< the order in which it takes its keys
  bool sums_stored = false;  ///< weights are divided by the sum of the stored values

  /// The difference from the twin of all points, in words; empty if there is none.
  [[nodiscard]] std::string words() const;
  friend bool operator==(const TwinVariant& x, const TwinVariant& y) {
    return x.skipped.points == y.skipped.points && x.softmax == y.softmax && x.sums_stored == y.sums_stored;
  }
};

/// One sequence, evaluated in calls that end at `cuts`, under a contract that keeps 16 bits.
struct TwinSubject {
  const Operator& op;
  const Call& call;
  const Tensors<double>& inputs;
  const std::vector<Index>& cuts;
  const Contract& contract;
  const OperatorOracle& oracle;
  /// Twins found for other sequences of the same run, the latest first, to which those found here are added:
  /// a kernel has the same points in all sequences, and in a sequence where a tie falls the other way early
  /// its twin is not the nearest.
  std::vector<TwinVariant>* known = nullptr;
};

/// The outputs of the twin before they are written in their format; `met` collects the points that are
/// reached.
[[nodiscard]] Tensors<double> twin_values(const TwinSubject& of, const TwinVariant& variant,
                                          SkippedPoints* met = nullptr);

/// How far the roundings of working precision may take a kernel with the twin's points away from the twin:
/// the running error, restarted at each point where all values that a kernel may have round to one number.
struct TwinBound {
  Tensors<double> value;
  Tensors<double> slack;
  Tensors<bool> undecided;  ///< [rows, 1] rows of tokens whose choice these roundings may change
};
[[nodiscard]] TwinBound twin_bound(const TwinSubject& of, const TwinVariant& variant);

/// A variant and its distance: means of rho over rows.
struct TwinDistance {
  TwinVariant variant;
  Tensors<double> value;
  double most = 0.0;   ///< for the output with the largest distance
  double total = 0.0;  ///< over all outputs
};

/// Searches the twins that a kernel may have.
class TwinSearch {
 public:
  /// All arguments must live as long as the search.
  TwinSearch(const TwinSubject& of, const Tensors<double>& actual, const JudgePolicy& policy);
  /// Calls `accepts` with candidate twins until one is accepted. First come the known twins, however far, and
  /// then those within kOperatorTwinSame: the twin of all points; those without any point, without all points
  /// that are declared alike or in one table (a stage that a kernel keeps in fp32), and without a single one;
  /// then combinations of these that come nearer. In the end all twins with one change and the nearest others
  /// are offered.
  void run(const std::function<bool(const TwinDistance&)>& accepts);
  [[nodiscard]] const TwinDistance& nearest() const { return nearest_; }
  [[nodiscard]] int evaluated() const { return evaluated_; }

 private:
  [[nodiscard]] TwinDistance evaluate_variant(TwinVariant variant, SkippedPoints* met);
  [[nodiscard]] std::vector<SkippedPoints> moves() const;
  /// Changes of the order in which a softmax is taken, one at a time.
  [[nodiscard]] std::vector<std::function<void(TwinVariant&)>> orders() const;
  /// For a softmax whose keys are taken in independent parts of whole tiles (flash decoding), every number
  /// and length of parts.
  [[nodiscard]] std::vector<TwinVariant> in_parts() const;
  /// For a kernel that keeps most values in fp32: starting from the twin without any point, adds back one
  /// point after another as long as the twin comes nearer. Returns true if one was accepted; the nearest of
  /// each round is added to `all`.
  [[nodiscard]] bool stores_few(const std::function<bool(const TwinDistance&)>& accepts, int most,
                                std::vector<TwinDistance>& all);
  /// The changes that may have to be made together: every subset of JudgePolicy::twin_subsets points or fewer
  /// left out, with more points every pair; and each point with each order.
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
  /// The kernel is as near in every row and element as sums in another order bring it. It then belongs to the
  /// population of the contract's kernels, and no roundings need to be drawn.
  bool same = false;
  SoftmaxOrder softmax;  ///< the order of the twin under which it passes
};

/// Compares the kernel with the nearest twins. An element beyond the twin's bound fails. An output also fails
/// if it has at least kOperatorTwinLeast rows, counted by how many elements carry their errors, and its share
/// of roundings that differ from the twin's exceeds the limit: the largest of kOperatorTwinShare,
/// kOperatorTwinRows rows altogether, and kOperatorTwinSpread times the largest share among twins whose sums
/// of working precision are drawn. The best of the nearest twins decides. Gates: "twin element" and "twin
/// share". Vacuous if nothing was compared or the twin is undetermined.
[[nodiscard]] TwinJudgement judge_operator_twin(const TwinSubject& of, const Tensors<double>& actual,
                                                std::uint64_t seed, const JudgePolicy& policy);

}  // namespace samestate
