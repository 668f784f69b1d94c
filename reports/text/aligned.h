#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace samestate {

/// The words of a text, which blanks and ends of lines divide, in lines of at most `width` columns, of which the first
/// begins at column `begin` and the others at `indent`. No word is broken: one that is longer than a line has its own. The
/// last line does not end.
[[nodiscard]] std::string wrapped(std::string_view text, std::size_t width, std::size_t indent = 0,
                                  std::size_t begin = 0);

/// The number of columns that a terminal shows a line of UTF-8 in: one for each character, and none for the codes of
/// Paint.
[[nodiscard]] std::size_t columns_of(std::string_view text);

/// Formats a table of words for a terminal, whose first row names the columns: the columns of all rows are aligned, two
/// spaces apart, and the last one is as long as it is. Each row ends its line. With a `width` above 0, cells are wrapped
/// between words so that rows have at most that many columns. If the words of the other columns are too long for that,
/// the last column goes below its row; if that is not enough, several do, each value after the name of its column.
[[nodiscard]] std::string aligned(const std::vector<std::vector<std::string>>& rows, std::size_t width = 0);

/// The words of a text in lines of at most `columns`, each under the indent, without an end of the last one.
[[nodiscard]] std::string wrapped(std::string_view text, std::string_view indent, std::size_t columns);

}  // namespace samestate
