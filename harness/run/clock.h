#pragma once

#include <functional>

#include "optimized/kernel.h"

namespace samestate {

/// Times a kernel that does not time itself: the wall clock around whole calls of `run`, before each of which `spoil` poisons
/// their outputs.
[[nodiscard]] Timing time_by_clock(const std::function<void()>& spoil, const TimingRequest& request,
                                   const std::function<Outcome()>& run);

}  // namespace samestate
