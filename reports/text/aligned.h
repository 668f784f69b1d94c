#pragma once

#include <string>
#include <vector>

namespace samestate {

/// A table of words for a terminal: columns are aligned and two spaces apart; the last one is not padded.
/// Each row ends with a newline.
[[nodiscard]] std::string aligned(const std::vector<std::vector<std::string>>& rows);

}  // namespace samestate
