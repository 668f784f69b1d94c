#pragma once

#include <string>
#include <vector>

#include "harness/run/run_case.h"
#include "reference/sequence.h"

namespace samestate {

/// Distinguishes roundings from mistakes by where the errors are: roundings leave an error nearly everywhere,
/// of a size in proportion to the values, whereas a mistake in a choice, an index or a count leaves a few
/// large ones.
class RoundingShape {
 public:
  void add(const Matrix<double>& exact, const Matrix<double>& actual);

  /// True if at least a third of the elements differ and the error does not come from a few of them: (sum
  /// e^2)^2 over n sum e^4, with e relative to the root mean square of its tensor, is 1/3 for normal errors
  /// and 1/n for a single one.
  [[nodiscard]] bool of_roundings() const;

 private:
  double squares_ = 0.0, fourths_ = 0.0;
  double count_ = 0.0, differing_ = 0.0;
  bool finite_ = true;
};

/// Returns true if the errors of a run that passes under a contract are as large as its roundings make them,
/// and not those of a fault that disappears in a wider bound: at least one of its gates must be used to
/// kLeastUsed.
[[nodiscard]] bool has_size_of_roundings(const Judgement& j);

/// The share of a bound that roundings of its own contract reach; a fault in fp32 that tf32 hides uses a
/// thousandth of it.
inline constexpr double kLeastUsed = 0.05;

/// The result of trying to pass a kernel's failures under another contract.
struct ContractTrial {
  int tried = 0;          ///< the number of failing cases that could be judged under it
  bool passes = true;     ///< all of them pass
  bool complete = false;  ///< at least `wanted` were tried, or all that there are
};

/// The number of failing cases of a run that a contract must pass before it is named.
inline constexpr int kTrialCases = 8;

/// Runs `failing`, cases on which the kernel fails, and judges its results under its contract with the
/// changes that lead from `from` to `to`, each of which is one rounding point (oracles/contract_points.h). A
/// case with a law is run under the other contract. Cases that pass, or to which the change does not apply,
/// do not count. Ends at the first case that fails, and starts none after `seconds`.
[[nodiscard]] ContractTrial try_contract(const std::string& from, const std::string& to,
                                         const std::vector<Case>& failing, const KernelTable& table,
                                         double seconds);

/// Cases near a failing one on the same kernel: other seeds, twice the tokens, other regimes. If no other
/// failure is known, the suspicion from one run is tried on them.
[[nodiscard]] std::vector<Case> cases_near(const Case& failing);

}  // namespace samestate
