#pragma once

#include <csignal>
#include <functional>
#include <string>

#include "harness/processes/pool.h"

namespace samestate::cli {

/// From now on an interrupt, a SIGTERM or a SIGHUP is noted instead of ending the process. So is the second one, since what was found
/// may be under way to its files; stderr then says that the third ends the process.
void note_interrupts();

/// Whether one was noted, here or where this process was forked from after note_interrupts(): what is under way is finished, and nothing new is begun.
[[nodiscard]] bool interrupted();

/// run_apart, which an interrupt ends: some seconds after it, in which what was found so far can still be handed over, the
/// process is killed, and is one that hung.
[[nodiscard]] JobResult run_interruptibly(const std::function<std::string()>& body, double timeout);

/// While it lives, an interrupt, a SIGTERM or a SIGHUP is held back, so that what was started can be ended first; when it is gone, the
/// signal does what it would have done without it. One at a time.
class HeldInterrupts {
 public:
  HeldInterrupts();
  ~HeldInterrupts();
  HeldInterrupts(const HeldInterrupts&) = delete;
  HeldInterrupts& operator=(const HeldInterrupts&) = delete;
  /// Whether one of this process's has a signal.
  [[nodiscard]] static bool came();

 private:
  struct sigaction interrupt_ {
  }, terminate_{}, hang_up_{};  ///< what was there
};

}  // namespace samestate::cli
