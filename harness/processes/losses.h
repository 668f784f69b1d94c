#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "harness/records/record.h"

namespace samestate {

/// A kernel that costs so many processes, or so many seconds of cases that never ended, is run no further: one
/// that always hangs shall not take hours.
inline constexpr std::int64_t kMostLostProcesses = 20;
inline constexpr double kMostHungSeconds = 3600.0;
/// A process that touched memory outside its tensors is ended, since its heap may be damaged too. A kernel whose processes were
/// ended for that in so many cases, and took so many seconds to start meanwhile, is run no further; one that starts fast goes on.
inline constexpr std::int64_t kMostTrespasses = 20;
inline constexpr double kMostStartingSeconds = 60.0;

/// What each kernel cost so far.
class Losses {
 public:
  /// Counts what took a process or its device context with it: crash, timeout, and either of them that was not
  /// repeated; and, apart, what had to be ended because it left its memory. What a kernel on the CPU threw costs nothing.
  void add(const Record& record);
  [[nodiscard]] bool none() const { return by_kernel_.empty(); }
  /// Sets the judgement to skipped and says why where the record's kernel is run no further.
  [[nodiscard]] bool skip(Record& record) const;

 private:
  struct Cost {
    std::int64_t processes = 0;
    double hung = 0.0;  ///< seconds
    std::int64_t trespasses = 0;
    double starting = 0.0;  ///< seconds that its processes took to start since the first trespass
  };
  std::map<std::string, Cost> by_kernel_;
};

}  // namespace samestate
