#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

namespace samestate::cli {

/// A line on stderr that a person at a terminal watches: how far, the worst ratio, the time left. A file or a pipe gets a line
/// of its own every half minute, so that the log of a long run shows that it goes on.
class Progress {
 public:
  static constexpr std::chrono::milliseconds kPauseOfLog = std::chrono::seconds(30);

  /// Until `total` steps are done or `budget` seconds are spent, whichever comes first; 0: no such end.
  /// `total_work`: where steps differ in size, the sum of theirs; 0: all alike. `pause_of_log`: at least, between the lines
  /// that a file or a pipe gets.
  explicit Progress(std::int64_t total, double budget = 0.0, double total_work = 0.0,
                    std::chrono::milliseconds pause_of_log = kPauseOfLog);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void step(double ratio, bool failed, double work = 1.0);
  /// So many seconds of the steps went into compilers.
  void compiled(double seconds) { compiling_ += seconds; }
  /// A step of a search that has neither an end nor ratios: what it is at.
  void at(std::string_view what);
  /// So many steps more, of which nobody knew.
  void add(std::int64_t steps);
  /// Takes the line away.
  void clear();

 private:
  void draw(std::string text, double part);

  using Clock = std::chrono::steady_clock;
  std::int64_t total_;
  double budget_;
  std::int64_t done_ = 0;
  std::int64_t failures_ = 0;
  double total_work_;
  double work_ = 0.0;
  double worst_ = 0.0;
  double compiling_ = 0.0;
  bool terminal_;
  std::chrono::milliseconds pause_;  ///< between two lines
  bool shown_ = false;               ///< the line is on the screen
  Clock::time_point begin_ = Clock::now();
  Clock::time_point drawn_ = begin_;
};

}  // namespace samestate::cli
