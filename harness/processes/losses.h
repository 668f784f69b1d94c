#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "harness/records/record.h"

namespace samestate {

/// Limits after which a kernel is not run any more, because it has cost too many processes or too many
/// seconds of cases that never ended: a kernel that always hangs must not take hours.
inline constexpr std::int64_t kMostLostProcesses = 20;
inline constexpr double kMostHungSeconds = 3600.0;
/// A process that touched memory outside its tensors is ended, since its heap may be damaged. A kernel for
/// which this happened in this many cases, and whose processes took this many seconds to restart, is not run
/// any more; one that starts fast continues.
inline constexpr std::int64_t kMostTrespasses = 20;
inline constexpr double kMostStartingSeconds = 60.0;

/// Counts the processes and device contexts that each kernel has cost so far.
class Losses {
 public:
  /// Counts results that took down a process or its device context: crash, timeout, and either of them that
  /// was not repeated. Processes that had to be ended because they left their memory are counted separately.
  /// An exception in a CPU kernel costs nothing.
  void add(const Record& record);
  [[nodiscard]] bool none() const { return by_kernel_.empty(); }
  /// If the record's kernel is not run any more, sets the judgement to skipped, with the reason, and returns
  /// true.
  [[nodiscard]] bool skip(Record& record) const;

 private:
  struct Cost {
    std::int64_t processes = 0;
    double hung = 0.0;  ///< seconds
    std::int64_t trespasses = 0;
    double starting = 0.0;  ///< seconds that its processes took to start after the first access outside its
                            ///< tensors
  };
  std::map<std::string, Cost> by_kernel_;
};

}  // namespace samestate
