#pragma once

#include <functional>

#include "harness/run/call_loop.h"
#include "optimized/kernel.h"

namespace samestate {

/// Times a kernel that does not time itself: by the wall clock around whole calls of `run`; before each of
/// them the dense outputs of `call` are poisoned.
[[nodiscard]] Timing time_by_clock(const KernelCall& call, const TimingRequest& request,
                                   const std::function<Outcome()>& run);

}  // namespace samestate
