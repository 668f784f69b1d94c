#pragma once

#include <csignal>

namespace samestate::cli {

/// From now on an interrupt or a SIGTERM is noted instead of ending the process. So is the second one, since what was found
/// may be under way to its files; stderr then says that the third ends the process.
void note_interrupts();

/// Whether one was noted, here or where this process was forked from after note_interrupts(): what is under way is finished, and nothing new is begun.
[[nodiscard]] bool interrupted();

/// While it lives, an interrupt or a SIGTERM is held back, so that what was started can be ended first; when it is gone, the
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
  }, terminate_{};  ///< what was there
};

}  // namespace samestate::cli
