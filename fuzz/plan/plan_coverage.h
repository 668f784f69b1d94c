#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "fuzz/plan/plan.h"

namespace samestate {

/// How much of what a plan could meet was met by cases that were judged.
struct CoverageCount {
  std::int64_t possible =
      0;  ///< pairs that a case can have; triples: whose three pairs are, which is more than there are
  std::int64_t met = 0;
  std::int64_t dear =
      0;  ///< of the possible ones not met, those that take more time than the plan gives one case, or all of them

  [[nodiscard]] double share() const {
    return possible == 0 ? 1.0 : static_cast<double>(met) / static_cast<double>(possible);
  }
};

/// Counts, by kernel, the pairs and triples of levels (factors.h) of judged cases.
class PlanCoverage {
 public:
  /// What `plan` says of its kernels; the cases do not matter.
  explicit PlanCoverage(const Plan& plan);
  ~PlanCoverage();
  PlanCoverage(PlanCoverage&&) noexcept;

  /// A case that was judged, on the kernel of that name; of others nothing is counted.
  void add(const Case& c, std::string_view kernel);

  /// Cases for the possible pairs that no judged case had, for a further run, of kernels most of whose pairs were judged (a
  /// kernel that has no device here has none); equal judgements give equal cases. `round`: 0
  /// to kCoverAgain - 1.
  [[nodiscard]] std::vector<Case> again(const KernelTable& table, std::uint64_t seed, int round) const;

  [[nodiscard]] CoverageCount pairs() const;
  [[nodiscard]] CoverageCount triples() const;
  /// Possible pairs that no case had, that are not dear: at most `most`, as "KERNEL: contract=bf16 with T=512-4160".
  [[nodiscard]] std::vector<std::string> missing(std::size_t most) const;
  /// One line for a person.
  [[nodiscard]] std::string text() const;
  /// {"pairs": {...}, "triples": {...}, "kernels": [{"kernel", "possible", "met", "dear", "missing": [...]}]}
  [[nodiscard]] std::string json() const;

 private:
  struct Kernel;
  /// A kernel of a device that is not here counts nowhere.
  [[nodiscard]] static bool counts(const Kernel& kernel);
  std::vector<std::unique_ptr<Kernel>> kernels_;
};

}  // namespace samestate
