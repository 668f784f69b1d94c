#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "fuzz/covering.h"
#include "harness/cases/case_filter.h"
#include "harness/run/run_case.h"

namespace samestate {

inline constexpr double kTriples = 10.0;  ///< effort from which on a plan has every triple

/// Which cases a campaign runs.
struct PlanOptions {
  std::uint64_t seed = 1;      ///< of the seeded cases; the edge cases are always the same
  double effort = 1.0;         ///< multiplies the number of seeded cases
  std::string system;          ///< only these, names or patterns with commas between; empty: all
  std::string device;          ///< only kernels of this one (cpu, cuda); empty: all
  std::string kernel;          ///< only these, as system; empty: all in the table
  std::int64_t max_cases = 0;  ///< at most this many, spread over the whole plan; 0: no limit
  CaseFilter filter;           ///< the plan drops the cases that it refuses
  /// Told how many of how many kernels have their cases, from the first: many take minutes. One call at a time, from
  /// any thread.
  std::function<void(std::size_t done, std::size_t of)> planned = nullptr;
  /// Once it says so no kernel's cases are begun: what comes back is then no plan.
  std::function<bool()> stop = nullptr;
};

/// The kernels that a campaign is about: NAME[,NAME...] with patterns (* and ?) for system and kernel; empty: no filter.
/// Throws Error for a filter that names what does not exist, or excludes itself: that would look like a machine on which
/// nothing can run.
[[nodiscard]] std::vector<const KernelRow*> wanted_kernels(const KernelTable& table,
                                                           const std::string& system,
                                                           const std::string& device,
                                                           const std::string& kernel);

/// Whether a case of the kernel may fit: what the filter says of system and kernel holds of the row.
[[nodiscard]] bool may_fit(const KernelRow& row, const CaseFilter& filter);

/// Drops the cases that the filter refuses.
void keep_taken(std::vector<Case>& cases, const KernelTable& table, const CaseFilter& filter);

/// What the pairs of factors (factors.h) of one kernel's cases are to its plan.
struct KernelCoverage {
  const KernelRow* kernel = nullptr;
  std::vector<Missing> missing;  ///< by pair (Combinations): why the plan of effort 1 does not have it
};

/// A campaign's cases and what they are chosen to cover.
struct Plan {
  std::vector<Case> cases;
  std::int64_t total = 0;  ///< of the plan before max_cases
  std::vector<KernelCoverage> kernels;
};

/// First the edges of each kernel: T in {0, 1, C-1, C, C+1}, each size at its least and at an odd value, every
/// contract, regime, law and value of a key, the rows of System::plan, sizes of public models. Then, in turn, a
/// covering set (covering.h: each boundary of each size, every pair of levels of two factors that a case can have and
/// afford) and drawn cases (draw_case), System::plan's count a kernel. `effort` multiplies the drawn cases, whose sizes
/// it widens too; below 1 it takes the first ones of both, from 10 on the plan has every triple that a case can have.
/// The plan is a function of the options and the table's rows alone.
/// Throws Error for a system, device or kernel that does not exist, or a kernel that the other two exclude.
[[nodiscard]] Plan plan_of(const KernelTable& table, const PlanOptions& options);
[[nodiscard]] std::vector<Case> plan_cases(const KernelTable& table, const PlanOptions& options);

}  // namespace samestate
