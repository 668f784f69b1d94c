#pragma once

#include <span>
#include <string>

#include "harness/records/record.h"

namespace samestate {

/// How the time of a run's cases was spent, in two lines per kernel, the most expensive first: starting its
/// processes, waiting for one, compiling, tuning, copies, the kernel itself, passing tensors between
/// processes, and judging; the time of a kernel in this process counts as judging. Cases that run
/// concurrently each count their own time. Ends in a newline; empty without a record.
[[nodiscard]] std::string timings_text(std::span<const Record> records);

}  // namespace samestate
