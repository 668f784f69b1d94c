#include "harness/run/clock.h"

#include <algorithm>
#include <chrono>

namespace samestate {

Timing time_by_clock(const std::function<void()>& spoil, const TimingRequest& request,
                     const std::function<Outcome()>& run) {
  using Clock = std::chrono::steady_clock;
  Timing timing;
  timing.how = "call";
  double total = 0.0;
  for (int i = 0; i < std::max(1, request.warm_up); ++i) {
    timing.outcome = run();
    if (timing.outcome.kind != Outcome::Kind::ran) return timing;
  }
  while (std::ssize(timing.seconds) < request.least_samples ||
         (total < request.seconds && std::ssize(timing.seconds) < request.most_samples)) {
    spoil();
    const auto begin = Clock::now();
    (void)run();
    timing.seconds.push_back(std::chrono::duration<double>(Clock::now() - begin).count());
    total += timing.seconds.back();
  }
  return timing;
}

}  // namespace samestate
