#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace samestate {

/// A table of words for a terminal: the columns of all rows begin below each other, two spaces apart; the last
/// one is as long as it is. Each row ends its line.
[[nodiscard]] std::string aligned(const std::vector<std::vector<std::string>>& rows);

/// The words of a text in lines of at most `columns`, each under the indent, without an end of the last one.
[[nodiscard]] std::string wrapped(std::string_view text, std::string_view indent, std::size_t columns);

}  // namespace samestate
