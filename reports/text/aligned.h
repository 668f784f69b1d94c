#pragma once

#include <string>
#include <vector>

namespace samestate {

/// A table of words for a terminal: the columns of all rows begin below each other, two spaces apart; the last
/// one is as long as it is. Each row ends its line.
[[nodiscard]] std::string aligned(const std::vector<std::vector<std::string>>& rows);

}  // namespace samestate
