#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "fuzz/plan/covering.h"
#include "fuzz/plan/lists.h"
#include "harness/cases/case_filter.h"
#include "harness/run/run_case.h"

namespace samestate {

inline constexpr double kTriples = 10.0;  ///< effort from which on a plan has every triple

/// Seconds of one core that judging a plan of effort 1 takes: 100 seconds on two cores.
inline constexpr double kSecondsOfPlan = 200.0;

/// Which cases a campaign runs.
struct PlanOptions {
  std::uint64_t seed = 1;           ///< of the seeded cases; the edge cases are always the same
  double effort = 1.0;              ///< multiplies `seconds`; 0: the edges alone
  double seconds = kSecondsOfPlan;  ///< of one core for all kernels together, by System::work's estimate
  std::string system;               ///< only these, names or patterns with commas between; empty: all
  std::string device;               ///< only kernels of this one (cpu, cuda); empty: all
  std::string kernel;               ///< only these, as system; empty: all in the table
  std::int64_t max_cases = 0;       ///< at most this many, spread over the whole plan; 0: no limit
  CaseFilter filter;                ///< the plan drops the cases that it refuses
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

/// What the pairs of factors (factors.h) of one kernel's cases are to its plan.
struct KernelCoverage {
  const KernelRow* kernel = nullptr;
  std::vector<Missing> missing;  ///< by pair (Combinations): why the plan of effort 1 does not have it
  bool whole = true;             ///< the plan has all edges and the whole covering set: their time sufficed
};

/// An ordinary call of a plan (ordinary_calls.h), or a kind of call of a model that no case makes.
struct PlannedCall {
  std::string line;  ///< of the case; empty where none could be made
  const KernelRow* kernel = nullptr;
  std::string_view model, kind;
  bool smaller = false;       ///< not all sizes are the model's
  std::string_view why = {};  ///< why no case could be made
};

/// A campaign's cases and what they are chosen to cover.
struct Plan {
  std::vector<Case> cases;
  std::vector<const PlanList*> lists;  ///< by case: the one that it comes from
  std::int64_t total = 0;              ///< of the plan before max_cases
  std::vector<KernelCoverage> kernels;
  std::vector<PlannedCall> calls;

  void add(Case c, const PlanList& list);
  /// Keeps the cases at these places alone, in this order.
  void keep(const std::vector<std::size_t>& places);
  /// Keeps at most so many, evenly spread; 0: all.
  void keep_at_most(std::int64_t most);
};

/// The kernels share the time equally (plan_of_kernel). The edges of all kernels come first, then, in turn, the other lists of
/// plan_lists(): a covering set, drawn cases and ordinary calls, which have at least half of the time. From effort 10 on the plan
/// has every triple that a case can have, however long they take. The plan is a function of the options and the tables' rows alone.
/// Throws Error for a system, device or kernel that does not exist, or a kernel that the other two exclude.
[[nodiscard]] Plan plan_of(const KernelTable& table, const PlanOptions& options);
[[nodiscard]] std::vector<Case> plan_cases(const KernelTable& table, const PlanOptions& options);

}  // namespace samestate
