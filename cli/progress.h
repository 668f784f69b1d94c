#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

namespace samestate::cli {

/// A line on stderr for a person at a terminal: progress, the worst ratio, the time left. A file or a pipe
/// gets a separate line every half minute, so that the log of a long run shows that it continues.
class Progress {
 public:
  static constexpr std::chrono::milliseconds kPauseOfLog = std::chrono::seconds(30);

  /// Runs until `total` steps are done or `budget` seconds are spent, whichever comes first; 0 means no such
  /// end. `total_work` is the sum of the steps' sizes if they differ; 0 means equal steps. `pause_of_log` is
  /// the minimum time between lines in a file or a pipe.
  explicit Progress(std::int64_t total, double budget = 0.0, double total_work = 0.0,
                    std::chrono::milliseconds pause_of_log = kPauseOfLog);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void step(double ratio, bool failed, double work = 1.0);
  /// Reports that this many seconds of the steps were spent in compilers.
  void compiled(double seconds) { compiling_ += seconds; }
  /// Reports what a search without a known end or ratios is doing.
  void at(std::string_view what);
  /// Adds steps that were not known before.
  void add(std::int64_t steps);
  /// Removes the line.
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
  std::chrono::milliseconds pause_;  ///< minimum time between two lines
  bool shown_ = false;               ///< the line is on the screen
  Clock::time_point begin_ = Clock::now();
  Clock::time_point drawn_ = begin_;
};

}  // namespace samestate::cli
