#pragma once

#include <cstdint>
#include <vector>

#include "fuzz/plan/dice.h"
#include "fuzz/plan/factors.h"
#include "fuzz/plan/kernel_plan.h"

namespace samestate {

/// Makes the cases of one kernel's plan, list by list, and counts the time that they take. Each method is
/// called once, in the order of plan_lists().
class KernelTurns {
 public:
  /// Makes edges and covering set, and thins both to half of `seconds`.
  KernelTurns(const KernelTable& table, const KernelRow& kernel, const PlanOptions& options, double seconds);

  /// The kept cases of the covering set: for boundaries and pairs, and for triples of coarse levels.
  [[nodiscard]] std::vector<Case> pairs();
  [[nodiscard]] std::vector<Case> coarse_triples();
  /// Empty below effort kTriples.
  [[nodiscard]] std::vector<Case> dear_pairs();
  [[nodiscard]] std::vector<Case> triples();
  /// Returns drawn cases that take half of what is left of the first half of the time.
  [[nodiscard]] std::vector<Case> drawn();
  /// Ordinary calls in the remaining time.
  [[nodiscard]] std::vector<Case> ordinary_calls();

  /// Goes through the rows of plan_lists() that take turns. If no model calls the kernel, or its calls end
  /// before the time does, more drawn cases take the rest.
  [[nodiscard]] KernelPlan plan() &&;

 private:
  [[nodiscard]] double cost(const Case& c) const;
  [[nodiscard]] double drawn_cost(const Case& c) const;
  [[nodiscard]] Case named(Case c) const;
  [[nodiscard]] bool takes(const Case& c) const;
  [[nodiscard]] bool kept(const Case& c) const;
  [[nodiscard]] std::vector<Case> taken(const std::vector<Case>& cases) const;
  [[nodiscard]] std::vector<Case> numbered(const std::vector<Case>& cases);
  [[nodiscard]] bool brought(Case& c, const Dice& dice) const;
  [[nodiscard]] std::vector<Case> drawn_until(double seconds);
  void fit();
  void spread(std::vector<PlannedCase> cases);

  const KernelTable& table_;
  const KernelRow& kernel_;
  const PlanOptions& options_;
  const double seconds_;
  const std::vector<Factor> factors_;
  const CaseFilter& filter_;
  KernelPlan out_;
  std::vector<Case> given_;           ///< edges and covering set before any case is left out
  std::vector<Case> pairs_, coarse_;  ///< the cases of the covering set that the plan takes
  std::vector<Missing> missing_;  ///< missing pairs, taking into account those that effort kTriples affords
  double spent_ = 0.0;
  std::int64_t index_ = 0;  ///< counts the cases in covering sets
  std::int64_t drawn_ = 0;
};

}  // namespace samestate
