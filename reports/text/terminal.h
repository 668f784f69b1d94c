#pragma once

#include <span>
#include <string>
#include <string_view>

#include "harness/records/record.h"

namespace samestate {

/// The run on one screen (at most 40 lines of plain text, no colour codes): counts, up to 5 failures and the
/// 5 cases farthest above their groups (surprise.h) beside them, each with the command that repeats it, the spread
/// of the ratio in up to 8 regimes, and up to 5 reasons for not judging. Ends in a newline. `options` of those
/// commands: Run::options.
[[nodiscard]] std::string terminal_text(std::span<const Record> records, std::string_view options = {});

}  // namespace samestate
