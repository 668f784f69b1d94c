#pragma once

#include <vector>

#include "fuzz/plan/lists.h"
#include "fuzz/plan/plan.h"

namespace samestate {

/// A case that comes after the edges of a plan, and its turn among those of all kernels, as a share of the
/// plan.
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

/// Chooses cases of one kernel that together take about `seconds` of one core: at most half for edges, the
/// covering set and drawn cases, the rest for ordinary calls. What does not fit into its half is thinned:
/// edges evenly, the covering set by its last cases, which add the least. With a filter, cases are changed to
/// fulfil it. The result depends only on the row, the options and the rows of the table.
[[nodiscard]] KernelPlan plan_of_kernel(const KernelTable& table, const KernelRow& kernel,
                                        const PlanOptions& options, double seconds);

}  // namespace samestate
