#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace samestate {

/// A table of words for a terminal: columns are aligned and two spaces apart; the last one is not padded.
/// Each row ends with a newline.
[[nodiscard]] std::string aligned(const std::vector<std::vector<std::string>>& rows);

/// The words of a text in lines of at most `columns`, each under the indent, without an end of the last one.
[[nodiscard]] std::string wrapped(std::string_view text, std::string_view indent, std::size_t columns);

}  // namespace samestate
