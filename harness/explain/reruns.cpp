#include "harness/explain/reruns.h"

#include <fmt/format.h>

namespace samestate {
namespace {

std::chrono::steady_clock::duration lasting(double seconds) {
  return std::chrono::duration_cast<std::chrono::steady_clock::duration>(
      std::chrono::duration<double>(seconds));
}

}  // namespace

Reruns::Reruns(double seconds, int most)
    : most_(most), seconds_(seconds), end_(begin_ + lasting(seconds)), slice_(end_) {}

bool Reruns::start() {
  if (runs_ == most_ || Clock::now() >= slice_) {
    cut_ = true;
    return false;
  }
  ++runs_;
  return true;
}

void Reruns::slice(double share) {
  const Clock::time_point now = Clock::now();
  slice_ = now < end_ ? now + lasting(share * std::chrono::duration<double>(end_ - now).count()) : end_;
}

std::string Reruns::text() const {
  const double took = std::chrono::duration<double>(Clock::now() - begin_).count();
  return fmt::format(
      "{} reruns with one key changed at a time, {:.1f} s{}", runs_, took,
      cut_ ? fmt::format("; the limit of {} reruns and {:g} s left some values untried", most_, seconds_)
           : "");
}

}  // namespace samestate
