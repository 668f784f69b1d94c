#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "harness/processes/workers.h"

/// Failures that come after other cases alone: a kernel that keeps something from call to call (a cache by address, by
/// shape or by count, a workspace that nobody clears) passes when it is asked again in a process of its own.
namespace samestate {

/// Which tasks went to which process, in order.
class History {
 public:
  void add(const Task& task);
  /// The numbers of the tasks that were given to the same process before this one, in order.
  [[nodiscard]] std::vector<std::int64_t> before(const Task& task) const;

 private:
  std::map<std::uint64_t, std::map<std::uint32_t, std::int64_t>> tasks_;  ///< number by process and order
};

struct ReplayOptions {
  double timeout = 60.0;  ///< seconds that one sequence may take; 0: no limit
  double budget = 30.0;   ///< seconds for all of them, after which the shortest found is what there is
  std::function<bool()> stop = {};  ///< once true nothing more is tried, and what runs is ended
  /// CUDA_VISIBLE_DEVICES of the processes; empty: that of the caller.
  std::optional<std::string> gpus = {};
};

/// What came of it.
struct Replayed {
  bool repeated = false;    ///< the sequence brings the failure back
  std::vector<Case> after;  ///< the fewest found that bring it, in order; all that were given where none do
  CaseResult result;        ///< of the case behind them
};

/// Runs `c` behind `before`, one after the other in a process of its own, and looks for the fewest that bring a repeatable
/// failure: the last and the first of its own kernel, 1, 4, 16 .., then all of that, then all; from what brings it as many as
/// can be are left out, by halves, quarters, .., one by one. Cases that throw Error are left out.
[[nodiscard]] Replayed replay(std::vector<Case> before, const Case& c, const CaseRunner& run,
                              const ReplayOptions& options);

/// What becomes of `c` behind `before` in a process of its own, in at most `options.timeout` seconds.
[[nodiscard]] CaseResult run_behind(const std::vector<Case>& before, const Case& c, const CaseRunner& run,
                                    const ReplayOptions& options);

}  // namespace samestate
