#pragma once

#include <string>

namespace samestate::cli {

/// The screen that `samestate` prints without a verb: what the command does, five verbs with an example
/// each, and where to read on. It fits a terminal of 24 lines and 80 columns, and ends its last line.
[[nodiscard]] std::string first_screen();

}  // namespace samestate::cli
