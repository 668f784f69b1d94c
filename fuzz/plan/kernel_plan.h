#pragma once

#include <vector>

#include "fuzz/plan/lists.h"
#include "fuzz/plan/plan.h"

namespace samestate {

/// A case behind the edges of a plan, and when its turn comes among those of all kernels: a share of the plan.
struct Turn {
  double at = 0.0;
  PlannedCase planned;
};

/// The plan of one kernel.
struct KernelPlan {
  std::vector<PlannedCase> edges;
  std::vector<Turn> turns;  ///< covering set, drawn cases and ordinary calls, each evenly spread
  KernelCoverage coverage;
  std::vector<PlannedCall> calls;  ///< the ordinary calls among the turns, and those that cannot be made
};

/// Chooses cases of one kernel that take about `seconds` of one core together: at most half of it edges, the covering set and
/// drawn cases, the rest ordinary calls. What does not fit into its half is thinned: edges evenly, of the covering set the last
/// cases, which add least. With a filter cases are made to fit it. A function of the row, the options and the table's rows alone.
[[nodiscard]] KernelPlan plan_of_kernel(const KernelTable& table, const KernelRow& kernel,
                                        const PlanOptions& options, double seconds);

}  // namespace samestate
