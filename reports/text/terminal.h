#pragma once

#include <span>
#include <string>

#include "harness/records/record.h"

namespace samestate {

/// The run on one screen (at most 40 lines of plain text): counts, up to 5 kinds of failures
/// (failure_groups.h) with one example each, the cases farthest above their groups (surprise.h), each with
/// the command that repeats it, the spread of the ratio in up to 8 regimes, and up to 5 reasons for not
/// judging; half of these if something failed. Ends in a newline. `colour`: failures red, passes green,
/// commands dim, for a terminal.
[[nodiscard]] std::string terminal_text(std::span<const Record> records, bool colour = false);

}  // namespace samestate
