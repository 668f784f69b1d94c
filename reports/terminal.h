#pragma once

#include <span>
#include <string>

#include "harness/records/record.h"

namespace samestate {

/// The run on one screen (at most 40 lines of plain text, no colour codes): counts, up to 5 failures and the
/// 5 worst ratios beside them, each with the command that repeats it, the spread of the ratio in up to 8
/// regimes, and up to 5 reasons for not judging. Ends in a newline.
[[nodiscard]] std::string terminal_text(std::span<const Record> records);

}  // namespace samestate
