#pragma once

#include <chrono>
#include <string>

namespace samestate {

/// The runs that an explanation may make of a failing case and of cases beside it: bounded in number and in time, so that
/// an explanation ends whatever a kernel takes. A run that was started in time may end later.
class Reruns {
 public:
  /// At most `most` runs, none of them started after `seconds`.
  explicit Reruns(double seconds, int most = kMost);

  static constexpr int kMost = 256;

  /// Counts one more run. Returns false, and notes that something was left out, where none may be started.
  [[nodiscard]] bool start();

  /// Until the next call of this, no run is started after `share` of the time that is left; 1 gives all of it.
  void slice(double share);

  /// "41 reruns with one key changed at a time, 1.2 s", and that a limit ended them where one did.
  [[nodiscard]] std::string text() const;

  [[nodiscard]] int runs() const { return runs_; }

 private:
  using Clock = std::chrono::steady_clock;
  int most_, runs_ = 0;
  double seconds_;
  Clock::time_point begin_ = Clock::now(), end_, slice_;
  bool cut_ = false;
};

}  // namespace samestate
