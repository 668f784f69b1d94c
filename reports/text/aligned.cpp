#include "reports/text/aligned.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>

namespace samestate {

std::string aligned(const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::size_t> width;
  for (const auto& row : rows) {
    width.resize(std::max(width.size(), row.size()), 0);
    for (std::size_t i = 0; i < row.size(); ++i) width[i] = std::max(width[i], row[i].size());
  }
  std::string text;
  for (const auto& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i)
      text += i + 1 < row.size() ? fmt::format("{:<{}}  ", row[i], width[i]) : row[i];
    text += '\n';
  }
  return text;
}

std::string wrapped(std::string_view text, std::string_view indent, std::size_t columns) {
  std::string out;
  std::size_t column = 0;
  while (!text.empty()) {
    const std::size_t space = text.find(' ');
    const std::string_view word = text.substr(0, space);
    if (column == 0 || column + 1 + word.size() > columns) {
      out += fmt::format("{}{}{}", column == 0 ? "" : "\n", indent, word);
      column = indent.size() + word.size();
    } else {
      out += fmt::format(" {}", word);
      column += 1 + word.size();
    }
    text.remove_prefix(space == text.npos ? text.size() : space + 1);
  }
  return out;
}

}  // namespace samestate
