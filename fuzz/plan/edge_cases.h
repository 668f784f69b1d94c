#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "fuzz/plan/lists.h"
#include "harness/run/kernel_table.h"

namespace samestate {

/// The edge cases of one kernel, as the lists add them. Each line is kept once, for the first list that has
/// it.
class EdgeCases {
 public:
  EdgeCases(const KernelTable& table, const KernelRow& kernel);

  [[nodiscard]] const KernelRow& kernel() const { return kernel_; }
  [[nodiscard]] const System& system() const { return *kernel_.system; }
  /// start_of the kernel.
  [[nodiscard]] const Case& start() const { return start_; }
  [[nodiscard]] Case under(const std::string& contract) const;
  /// The first contract of the kernel, and the one that rounds if that is another.
  [[nodiscard]] std::vector<std::string> two_contracts() const;
  /// Returns true if the kernel's form reads chunks.
  [[nodiscard]] bool chunked() const;

  /// Adds the case if the kernel supports it: a size at its least value may not fit the others, or a layout
  /// the kernel.
  void put(Case c);
  void put(const Case& c, std::string_view part);
  /// Adds it if its System::work is at most `most`.
  void put_within(double most, Case c);

  /// True if the sizes are possible together and the work is at most `most`.
  [[nodiscard]] bool affordable(const Case& c, double most) const;
  /// few_of_each_size (wide_calls.h) for this kernel.
  [[nodiscard]] Case few(Case c, Index most = 3) const;
  /// Raises the sizes of `c` to `tile`, the largest of the start first, as far as `most` allows. Returns
  /// false if even two of each cost more.
  [[nodiscard]] bool fill(Case& c, Index tile, double most) const;
  /// A case of a form that decodes: without chunks if the kernel has none.
  [[nodiscard]] Case decoding(Case c, const CaseForm& form) const;

 private:
  friend std::vector<PlannedCase> edge_cases_of(const KernelTable& table, const KernelRow& kernel);
  [[nodiscard]] std::vector<Case> bases(PlanList::Under under) const;
  [[nodiscard]] const std::string& rounding_contract() const;

  const KernelTable& table_;
  const KernelRow& kernel_;
  Case start_;
  const PlanList* list_ = nullptr;  ///< the list that is adding cases now
  std::vector<PlannedCase> out_;
  std::set<std::string> seen_;
};

/// The edge cases of one kernel: those of each row of plan_lists() with edges for kernels of its kind, in
/// order.
[[nodiscard]] std::vector<PlannedCase> edge_cases_of(const KernelTable& table, const KernelRow& kernel);

}  // namespace samestate
