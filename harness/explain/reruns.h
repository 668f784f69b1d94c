#pragma once

#include <fmt/format.h>

#include <chrono>
#include <string>

namespace samestate {

/// The runs that an explanation may make of a failing case and of similar cases. Their number and time are
/// bounded, so that an explanation ends however slow a kernel is. A run that was started in time may end
/// later.
class Reruns {
 public:
  static constexpr int kMost = 256;

  /// At most `most` runs, none of them started after `seconds`.
  explicit Reruns(double seconds, int most = kMost)
      : most_(most), seconds_(seconds), end_(begin_ + lasting(seconds)), slice_(end_) {}

  /// Counts one more run. Returns false, and notes that something was left out, if none may be started.
  [[nodiscard]] bool start() {
    if (runs_ == most_ || Clock::now() >= slice_) {
      cut_ = true;
      return false;
    }
    ++runs_;
    return true;
  }

  /// Until the next call of this, no run is started after `share` of the time that is left; 1 gives all of it.
  void slice(double share) {
    const Clock::time_point now = Clock::now();
    slice_ = now < end_ ? now + lasting(share * std::chrono::duration<double>(end_ - now).count()) : end_;
  }

  /// "41 reruns with one key changed at a time, 1.2 s", and that a limit ended them where one did.
  [[nodiscard]] std::string text() const {
    const double took = std::chrono::duration<double>(Clock::now() - begin_).count();
    return fmt::format(
        "{} reruns with one key changed at a time, {:.1f} s{}", runs_, took,
        cut_ ? fmt::format("; the limit of {} reruns and {:g} s left some values untried", most_, seconds_)
             : "");
  }

  [[nodiscard]] int runs() const { return runs_; }

 private:
  using Clock = std::chrono::steady_clock;

  static Clock::duration lasting(double seconds) {
    return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  }

  int most_, runs_ = 0;
  double seconds_;
  Clock::time_point begin_ = Clock::now(), end_, slice_;
  bool cut_ = false;
};

}  // namespace samestate
