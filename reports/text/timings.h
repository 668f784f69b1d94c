#pragma once

#include <span>
#include <string>

#include "harness/records/record.h"

namespace samestate {

/// Where the seconds of a run's cases went, two lines a kernel, the dearest first: starts of its processes, waiting for one, compiling,
/// tuning, copies, the kernel itself, passing tensors between processes, and judging; what a kernel of this process does counts
/// as judging. Cases that run at a time each count theirs. Ends in a newline; empty without a record.
[[nodiscard]] std::string timings_text(std::span<const Record> records);

}  // namespace samestate
