#pragma once

#include <cstdint>
#include <vector>

#include "harness/cases/case_filter.h"
#include "harness/run/run_case.h"

namespace samestate {

/// Which cases a campaign runs.
struct PlanOptions {
  std::uint64_t seed = 1;      ///< of the seeded cases; the edge cases are always the same
  double effort = 1.0;         ///< multiplies the number of seeded cases
  std::string system;          ///< only this one; empty: all
  std::string device;          ///< only kernels of this one (cpu, cuda); empty: all
  std::string kernel;          ///< only this one; empty: all in the table
  std::int64_t max_cases = 0;  ///< at most this many, spread over the whole plan; 0: no limit
  CaseFilter filter;           ///< the plan drops the cases that it refuses
};

/// The kernels that a campaign is about; empty: no filter. Throws Error for a filter that names what does not
/// exist, or excludes itself: that would look like a machine on which nothing can run.
[[nodiscard]] std::vector<const KernelRow*> wanted_kernels(const KernelTable& table,
                                                           const std::string& system,
                                                           const std::string& device,
                                                           const std::string& kernel);

/// Drops the cases that the filter refuses.
void keep_taken(std::vector<Case>& cases, const KernelTable& table, const CaseFilter& filter);

/// Edge cases first (T in {0, 1, C-1, C, C+1}, each size at its least and at an odd value, every contract,
/// regime, law and value of a key at least once for each kernel, and the rows of System::plan), then seeded
/// ones (draw_case), System::plan's count a kernel. The plan is a function of the options and the table's rows alone.
/// Throws Error for a system, device or kernel that does not exist, or a kernel that the other two exclude.
[[nodiscard]] std::vector<Case> plan_cases(const KernelTable& table, const PlanOptions& options);

}  // namespace samestate
