#include "cli/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <string>

namespace samestate::cli {

Progress::Progress(std::int64_t total, double budget, double total_work)
    : total_(total),
      budget_(budget),
      total_work_(total_work > 0.0 ? total_work : static_cast<double>(total)),
      terminal_(isatty(STDERR_FILENO) != 0) {}

Progress::~Progress() { clear(); }

void Progress::clear() {
  if (terminal_) fmt::print(stderr, "\r\033[K");
}

void Progress::step(double ratio, bool failed, double work) {
  ++done_;
  work_ += work;
  failures_ += failed;
  if (std::isfinite(ratio)) worst_ = std::max(worst_, ratio);
  const Clock::time_point now = Clock::now();
  if (!terminal_ || (now - drawn_ < std::chrono::milliseconds(100) && done_ != total_)) return;
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
  constexpr std::size_t kWidth = 24;
  const auto filled = static_cast<std::size_t>(std::min(part, 1.0) * static_cast<double>(kWidth));
  const std::string of_total = total_ > 0 ? fmt::format("/{}", total_) : "";
  fmt::print(stderr, "\r\033[K[{}{}] {}{}  {:.0f} cases/s  worst ratio {:.3f}  failures {}  {:.0f} s left",
             std::string(filled, '#'), std::string(kWidth - filled, '.'), done_, of_total, rate, worst_,
             failures_, left);
  std::fflush(stderr);
}

}  // namespace samestate::cli
