#include "cli/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <string>

#include "cli/terminal.h"

namespace samestate::cli {

Progress::Progress(std::int64_t total, double budget, double total_work,
                   std::chrono::milliseconds pause_of_log)
    : total_(total),
      budget_(budget),
      total_work_(total_work > 0.0 ? total_work : static_cast<double>(total)),
      terminal_(isatty(STDERR_FILENO) != 0),
      pause_(terminal_ ? std::chrono::milliseconds(100) : pause_of_log) {}

Progress::~Progress() { clear(); }

void Progress::add(std::int64_t steps) {
  total_ += steps;
  total_work_ += static_cast<double>(steps);
}

void Progress::clear() {
  if (!shown_) return;
  fmt::print(stderr, "\r\033[K");
  std::fflush(stderr);
  shown_ = false;
}

void Progress::step(double ratio, bool failed, double work) {
  ++done_;
  work_ += work;
  failures_ += failed;
  if (std::isfinite(ratio)) worst_ = std::max(worst_, ratio);
  const Clock::time_point now = Clock::now();
  if (now - drawn_ < pause_ && (done_ != total_ || !terminal_)) return;
  drawn_ = now;
  const double seconds = std::chrono::duration<double>(now - begin_).count();
  const double rate = static_cast<double>(done_) / std::max(seconds, 1e-9);
  double left = std::numeric_limits<double>::infinity();
  double part = 0.0;
  if (total_ > 0) {
    part = work_ / std::max(total_work_, 1e-300);
    left = done_ == total_ ? 0.0 : seconds * (1.0 - part) / std::max(part, 1e-9);
  }
  if (budget_ > 0) {
    left = std::min(left, std::max(budget_ - seconds, 0.0));
    part = std::max(part, seconds / budget_);
  }
  const std::string of_total = total_ > 0 ? fmt::format("/{}", total_) : "";
  // In an interpreter, a case takes seconds.
  const std::string speed =
      rate >= 1.0 ? fmt::format("{:.0f} cases/s", rate) : fmt::format("{:.1f} s a case", 1.0 / rate);
  draw(fmt::format("{}{}  {}  worst ratio {}  failures {}{}{}", done_, of_total, speed,
                   worst_ < 1e6 ? fmt::format("{:.3f}", worst_) : fmt::format("{:.1e}", worst_), failures_,
                   compiling_ >= 1.0 ? fmt::format("  compiling {:.0f} s", compiling_) : "",
                   std::isfinite(left) ? fmt::format("  {:.0f} s left", left) : ""),
       part);
}

void Progress::at(std::string_view what) {
  ++done_;
  const Clock::time_point now = Clock::now();
  if (now - drawn_ < pause_) return;
  drawn_ = now;
  draw(fmt::format("step {}, {:.0f} s: {}", done_, std::chrono::duration<double>(now - begin_).count(), what),
       -1.0);
}

/// `part` is the finished share of the work; a negative value means that the total is unknown.
void Progress::draw(std::string text, double part) {
  if (!terminal_) {
    fmt::print(stderr, "samestate: {}\n", text);
    return;
  }
  constexpr std::size_t kWidth = 24;
  const auto filled = static_cast<std::size_t>(std::clamp(part, 0.0, 1.0) * static_cast<double>(kWidth));
  const std::string bar = fmt::format("[{}{}] ", std::string(filled, '#'), std::string(kWidth - filled, '.'));
  // A line that fills the terminal would scroll it: the bar is dropped first, then the end of the text.
  const auto room = static_cast<std::size_t>(std::max(columns() - 1, 0));
  if (part >= 0.0 && (room == 0 || bar.size() + text.size() <= room)) text = bar + text;
  if (room > 0 && text.size() > room) text.resize(room);
  fmt::print(stderr, "\r\033[K{}", text);
  std::fflush(stderr);
  shown_ = true;
}

}  // namespace samestate::cli
