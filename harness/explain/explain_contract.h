#pragma once

#include <string>
#include <vector>

#include "harness/run/run_case.h"
#include "reference/sequence.h"

namespace samestate {

/// Where the errors of a run are: roundings leave one nearly everywhere and of a size that goes with the values, while a
/// mistake in a choice, an index or a count leaves a few large ones.
class RoundingShape {
 public:
  void add(const Matrix<double>& exact, const Matrix<double>& actual);

  /// Whether at least a third of the elements differ, and no few of them make up the error: (sum e^2)^2 over n sum e^4, with e
  /// relative to the root mean square of its tensor, is 1/3 for normal errors and 1/n for a single one.
  [[nodiscard]] bool of_roundings() const;

 private:
  double squares_ = 0.0, fourths_ = 0.0;
  double count_ = 0.0, differing_ = 0.0;
  bool finite_ = true;
};

/// Whether a run that passes under a contract has errors as large as its roundings make them, and not a fault that is lost in
/// a wider bound: one of its gates is used to at least kLeastUsed.
[[nodiscard]] bool has_size_of_roundings(const Judgement& j);

/// Share of a bound that roundings of its own contract reach; a fault in fp32 that tf32 covers uses a thousandth of it.
inline constexpr double kLeastUsed = 0.05;

/// What became of the attempt to pass a kernel's failures under another contract.
struct ContractTrial {
  int tried = 0;          ///< failing cases that could be held to it
  bool passes = true;     ///< all of them pass
  bool complete = false;  ///< at least `wanted` were tried, or all that there are
};

/// Failing cases of a run that a contract must pass before it is named.
inline constexpr int kTrialCases = 8;

/// Runs `failing`, cases on which the kernel fails, and judges what it returns under its contract with the changes that
/// lead from `from` to `to`: those of one rounding point each (oracles/contract_points.h). A case with a law is run under
/// the other contract. Cases that pass, or that have no place for the change, do not count. Ends at the first that fails,
/// and starts none after `seconds`.
[[nodiscard]] ContractTrial try_contract(const std::string& from, const std::string& to,
                                         const std::vector<Case>& failing, const KernelTable& table,
                                         double seconds);

/// Cases near a failing one on the same kernel: other seeds, twice the tokens, other regimes. What one run
/// looks like is tried on them where no other failure is known.
[[nodiscard]] std::vector<Case> cases_near(const Case& failing);

}  // namespace samestate
