#pragma once

#include <csignal>
#include <functional>
#include <string>

#include "harness/processes/pool.h"

namespace samestate::cli {

/// From now on an interrupt, SIGTERM or SIGHUP is recorded instead of ending the process. So is a second one,
/// because the results may still be being written; stderr then says that the third ends the process.
void note_interrupts();

/// True if one was recorded, here or, after note_interrupts(), in the process from which this one was forked:
/// running work is finished, and nothing new is started.
[[nodiscard]] bool interrupted();

/// run_apart with interrupts: some seconds after an interrupt, during which results can still be returned,
/// the process is killed and counts as hung.
[[nodiscard]] JobResult run_interruptibly(const std::function<std::string()>& body, double timeout);

/// While it lives, an interrupt, SIGTERM or SIGHUP is held back, so that started processes can be ended
/// first; when it is destroyed, the signal takes its normal effect. Only one may exist at a time.
class HeldInterrupts {
 public:
  HeldInterrupts();
  ~HeldInterrupts();
  HeldInterrupts(const HeldInterrupts&) = delete;
  HeldInterrupts& operator=(const HeldInterrupts&) = delete;
  /// True if the one of this process holds a signal.
  [[nodiscard]] static bool came();

 private:
  struct sigaction interrupt_ {
  }, terminate_{}, hang_up_{};  ///< the previous handlers
};

}  // namespace samestate::cli
