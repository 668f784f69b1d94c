#include "cli/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>

namespace samestate::cli {

Progress::Progress(std::int64_t total) : total_(total), terminal_(isatty(STDERR_FILENO) != 0) {}

Progress::~Progress() {
  if (terminal_) fmt::print(stderr, "\r\033[K");
}

void Progress::step(double ratio, bool failed) {
  ++done_;
  failures_ += failed;
  if (std::isfinite(ratio)) worst_ = std::max(worst_, ratio);
  const Clock::time_point now = Clock::now();
  if (!terminal_ || (now - drawn_ < std::chrono::milliseconds(100) && done_ < total_)) return;
  drawn_ = now;
  const double seconds = std::chrono::duration<double>(now - begin_).count();
  const double left = seconds / static_cast<double>(done_) * static_cast<double>(total_ - done_);
  constexpr std::int64_t kWidth = 24;
  const std::int64_t filled = total_ > 0 ? done_ * kWidth / total_ : kWidth;
  fmt::print(stderr, "\r\033[K[{}{}] {}/{}  {:.0f} cases/s  worst ratio {:.3f}  failures {}  {:.0f} s left",
             std::string(static_cast<std::size_t>(filled), '#'),
             std::string(static_cast<std::size_t>(kWidth - filled), '.'), done_, total_,
             static_cast<double>(done_) / std::max(seconds, 1e-9), worst_, failures_, left);
  std::fflush(stderr);
}

}  // namespace samestate::cli
