#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "fuzz/plan/covering.h"
#include "fuzz/plan/lists.h"
#include "harness/cases/case_filter.h"
#include "harness/run/run_case.h"

namespace samestate {

inline constexpr double kTriples = 10.0;  ///< the effort from which on a plan contains every triple

/// Seconds of one core that judging a plan of effort 1 takes: 115 seconds on two cores. All kernels share them, so it
/// grows with the table.
inline constexpr double kSecondsOfPlan = 230.0;

/// Selects the cases that a campaign runs.
struct PlanOptions {
  std::uint64_t seed = 1;           ///< for the seeded cases; the edge cases are always the same
  double effort = 1.0;              ///< multiplies `seconds`; 0 means the edges only
  double seconds = kSecondsOfPlan;  ///< for one core and all kernels together, as System::work estimates it
  std::string system;          ///< only these systems, names or patterns separated by commas; empty means all
  std::string device;          ///< only kernels on this device (cpu, cuda); empty means all
  std::string kernel;          ///< only these kernels, in the same format; empty means all in the table
  std::int64_t max_cases = 0;  ///< at most this many, spread over the whole plan; 0 means no limit
  CaseFilter filter;           ///< the plan drops the cases that it refuses
  /// Called with the number of kernels whose cases are ready and the total, starting with 0: many kernels
  /// take minutes. Called from any thread, one call at a time.
  std::function<void(std::size_t done, std::size_t of)> planned = nullptr;
  /// Once it returns true the cases of no further kernel are made; the result is then not a valid plan.
  std::function<bool()> stop = nullptr;
};

/// The kernels that a campaign runs. System and kernel are NAME[,NAME...] with patterns (* and ?); empty
/// means no filter. Throws Error for a filter that names something unknown, or whose conditions exclude each
/// other: otherwise it would look like a machine on which nothing can run.
[[nodiscard]] std::vector<const KernelRow*> wanted_kernels(const KernelTable& table,
                                                           const std::string& system,
                                                           const std::string& device,
                                                           const std::string& kernel);

/// True if there are kernels and each is a cuda kernel of this build, so that none can run without a device. A kernel of a
/// plugin or subject may find a device that this build does not.
[[nodiscard]] bool need_a_device(const KernelTable& table, const std::vector<const KernelRow*>& wanted);

/// True if a case of the kernel may be selected: the row fulfils what the filter says about system and
/// kernel.
[[nodiscard]] bool may_fit(const KernelRow& row, const CaseFilter& filter);

/// How the plan of one kernel covers the pairs of its factors (factors.h).
struct KernelCoverage {
  const KernelRow* kernel = nullptr;
  std::vector<Missing> missing;  ///< for each pair (Combinations): why the plan of effort 1 does not have it
  bool whole = true;             ///< the time was enough for all edges and the whole covering set
};

/// An ordinary call of a plan (ordinary_calls.h), or a kind of call of a model that no case makes.
struct PlannedCall {
  std::string line;  ///< the case line; empty if no case could be made
  const KernelRow* kernel = nullptr;
  std::string_view model, kind;
  bool smaller = false;       ///< not all sizes are those of the model
  std::string_view why = {};  ///< why no case could be made
  bool left_out = false;      ///< max_cases left its case out
};

/// The cases of a campaign, and what they were chosen to cover.
struct Plan {
  std::vector<Case> cases;
  std::vector<const PlanList*> lists;  ///< for each case, the list that it comes from
  std::int64_t total = 0;              ///< the size of the plan before max_cases
  std::int64_t thinned_to = 0;         ///< how many of them max_cases kept; 0 if it left none out
  std::vector<KernelCoverage> kernels;
  std::vector<PlannedCall> calls;

  void add(Case c, const PlanList& list);
  /// Keeps only the cases at these indices, in this order.
  void keep(const std::vector<std::size_t>& places);
  /// Keeps at most `most` cases, evenly spread, and marks the calls whose cases are left out; 0 means all.
  void keep_at_most(std::int64_t most);
};

/// Makes the plan. The kernels share the time equally (plan_of_kernel). The edges of all kernels come first,
/// then, in turn, the other lists of plan_lists(): a covering set, drawn cases and ordinary calls, which get
/// at least half of the time. From effort 10 on the plan contains every triple that a case can have, however
/// long that takes. The plan depends only on the options and the rows of the tables. Throws Error for an
/// unknown system, device or kernel, or a kernel that the other two exclude.
[[nodiscard]] Plan plan_of(const KernelTable& table, const PlanOptions& options);
[[nodiscard]] std::vector<Case> plan_cases(const KernelTable& table, const PlanOptions& options);

}  // namespace samestate
