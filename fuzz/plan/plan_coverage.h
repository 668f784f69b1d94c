#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "fuzz/plan/plan.h"

namespace samestate {

/// The share of what a plan could cover that its judged cases did cover.
struct CoverageCount {
  std::int64_t possible =
      0;  ///< pairs that a case can have; for triples, those whose three pairs are possible, which is an
          ///< upper bound
  std::int64_t met = 0;
  std::int64_t dear =
      0;  ///< possible ones that were not covered and take more time than the plan allows for one case, or
          ///< for all of them

  [[nodiscard]] double share() const {
    return possible == 0 ? 1.0 : static_cast<double>(met) / static_cast<double>(possible);
  }
};

/// Counts, by kernel, the pairs and triples of levels (factors.h) in judged cases.
class PlanCoverage {
 public:
  /// Takes what `plan` says about its kernels; its cases do not matter.
  explicit PlanCoverage(const Plan& plan);
  ~PlanCoverage();
  PlanCoverage(PlanCoverage&&) noexcept;

  /// Adds a case that was judged on the kernel of that name; other kernels are ignored.
  void add(const Case& c, std::string_view kernel);

  /// Cases, for a further run, for the possible pairs that no judged case had, for kernels most of whose
  /// pairs were judged (a kernel without a device here has none). Equal judgements give equal cases. `round`
  /// is 0 to kCoverAgain - 1.
  [[nodiscard]] std::vector<Case> again(const KernelTable& table, std::uint64_t seed, int round) const;

  [[nodiscard]] CoverageCount pairs() const;
  [[nodiscard]] CoverageCount triples() const;
  /// Up to `most` possible and affordable pairs that no case had, each as "KERNEL: contract=bf16 with
  /// T=512-4160".
  [[nodiscard]] std::vector<std::string> missing(std::size_t most) const;
  /// One line for a person.
  [[nodiscard]] std::string text() const;
  /// Returns {"pairs": {...}, "triples": {...}, "kernels": [{"kernel", "possible", "met", "dear", "missing":
  /// [...]}]}.
  [[nodiscard]] std::string json() const;

 private:
  struct Kernel;
  /// False for a kernel of a device that is not here.
  [[nodiscard]] static bool counts(const Kernel& kernel);
  std::vector<std::unique_ptr<Kernel>> kernels_;
};

}  // namespace samestate
