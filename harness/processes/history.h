#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "harness/processes/workers.h"

/// Failures that occur only after other cases: a kernel that keeps something from call to call (a cache by
/// address, by shape or by count, a workspace that is never cleared) passes when the case is repeated in a
/// process of its own.
namespace samestate {

/// Records which tasks were given to which process, and in which order.
class History {
 public:
  void add(const Task& task);
  /// The numbers of the tasks that were given to the same process before this one, in order.
  [[nodiscard]] std::vector<std::int64_t> before(const Task& task) const;

 private:
  /// task number by process and order
  std::map<std::uint64_t, std::map<std::uint32_t, std::int64_t>> tasks_;
};

struct ReplayOptions {
  double timeout = 60.0;  ///< seconds that one sequence may take; 0 means no limit
  double budget = 30.0;   ///< seconds for all of them; after that the shortest sequence found so far is the
                          ///< result
  std::function<bool()> stop = {};  ///< once true, nothing more is tried and a running attempt ends
  /// CUDA_VISIBLE_DEVICES of the processes; nullopt means that of the caller.
  std::optional<std::string> gpus = {};
};

/// The result of a replay.
struct Replayed {
  bool repeated = false;    ///< the sequence brings the failure back
  std::vector<Case> after;  ///< the smallest sequence found that does, in order; all cases that were given if
                            ///< none does
  CaseResult result;        ///< the result of the case after them
};

/// Runs `c` after `before`, one after the other in a process of its own, and looks for the smallest sequence
/// that brings a repeatable failure: the last and the first case of its own kernel, then the last 1, 4, 16
/// .., then all of that kernel, then all. From a sequence that works it leaves out as many cases as possible,
/// by halves, quarters, .., and finally one by one. Cases that throw Error are left out.
[[nodiscard]] Replayed replay(std::vector<Case> before, const Case& c, const CaseRunner& run,
                              const ReplayOptions& options);

/// The result of `c` after `before` in a process of its own, in at most `options.timeout` seconds.
[[nodiscard]] CaseResult run_behind(const std::vector<Case>& before, const Case& c, const CaseRunner& run,
                                    const ReplayOptions& options);

}  // namespace samestate
