#include "reports/text/aligned.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace samestate {
namespace {

constexpr std::size_t kGap = 2;     // between columns
constexpr std::size_t kBelow = 4;   // where a last column begins that stands below its row
constexpr std::size_t kLeast = 12;  // columns that a wrapped cell has, but where its words are all shorter

using Rows = std::vector<std::vector<std::string>>;

std::vector<std::string_view> words_of(std::string_view text) {
  std::vector<std::string_view> words;
  while (true) {
    const std::size_t begin = text.find_first_not_of(" \n");
    if (begin == text.npos) return words;
    const std::size_t end = std::min(text.find_first_of(" \n", begin), text.size());
    words.push_back(text.substr(begin, end - begin));
    text.remove_prefix(end);
  }
}

std::vector<std::string> lines_of(const std::string& cell, std::size_t width) {
  const std::string text = columns_of(cell) <= width ? cell : wrapped(cell, width);
  std::vector<std::string> lines;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

/// Widths of columns that rows of `most` columns have; the widest gives way first, and none to less than its longest word.
void narrow(std::vector<std::size_t>& width, const std::vector<std::size_t>& least, std::size_t most) {
  const auto total = [&] { return std::accumulate(width.begin(), width.end(), kGap * (width.size() - 1)); };
  while (total() > most) {
    std::size_t widest = width.size();
    for (std::size_t i = 0; i < width.size(); ++i) {
      if (width[i] > least[i] && (widest == width.size() || width[i] > width[widest])) widest = i;
    }
    if (widest == width.size()) return;
    --width[widest];
  }
}

std::string row_text(const std::vector<std::string>& row, const std::vector<std::size_t>& width) {
  std::vector<std::vector<std::string>> cells;
  std::size_t height = 1;
  for (std::size_t i = 0; i < row.size(); ++i) {
    cells.push_back(lines_of(row[i], width[i]));
    height = std::max(height, cells.back().size());
  }
  std::string text;
  for (std::size_t at = 0; at < height; ++at) {
    std::string line;
    for (std::size_t i = 0; i < cells.size(); ++i) {
      const std::string& cell = at < cells[i].size() ? cells[i][at] : std::string();
      line += cell;
      if (i + 1 < cells.size()) line.append(width[i] + kGap - std::min(width[i], columns_of(cell)), ' ');
    }
    line.erase(line.find_last_not_of(' ') + 1);  // spaces that fill a column whose text has ended
    text += line + '\n';
  }
  return text;
}

/// Says in one text what the columns of a row from `first` on hold: each value after the name that the table's first row
/// gives its column. A single column needs no name. Values that are not there are left out.
std::string named_values(const std::vector<std::string>& names, const std::vector<std::string>& row,
                         std::size_t first) {
  if (first + 1 == names.size()) return row.size() > first ? row[first] : "";
  std::string text;
  for (std::size_t i = first; i < row.size(); ++i) {
    if (row[i].empty() || row[i] == "-") continue;
    text += fmt::format("{}{}{}{}", text.empty() ? "" : "; ", names[i], names[i].empty() ? "" : ": ", row[i]);
  }
  return text;
}

/// Returns how many columns stand side by side in `most` columns of a terminal: all; or all but the last, if their words
/// have room then; or else those at the beginning that need not be wrapped, at least one.
std::size_t side_by_side(const std::vector<std::size_t>& width, const std::vector<std::size_t>& least,
                         std::size_t most) {
  const auto needed = [](const std::vector<std::size_t>& of, std::size_t columns) {
    return std::accumulate(of.begin(), of.begin() + static_cast<std::ptrdiff_t>(columns),
                           kGap * (columns - 1));
  };
  std::size_t columns = width.size();
  if (most == 0 || columns == 1 || needed(least, columns) <= most) return columns;
  if (needed(least, --columns) <= most) return columns;
  while (columns > 1 && needed(width, columns) > most) --columns;
  return columns;
}

}  // namespace

std::size_t columns_of(std::string_view text) {
  std::size_t columns = 0;
  bool code = false;
  for (const char c : text) {
    if (c == '\033') code = true;
    if (!code && (static_cast<unsigned char>(c) & 0xC0U) != 0x80U) ++columns;
    if (c == 'm') code = false;
  }
  return columns;
}

std::string wrapped(std::string_view text, std::size_t width, std::size_t indent, std::size_t begin) {
  std::string out;
  std::size_t column = begin;
  bool first = true;
  for (const std::string_view word : words_of(text)) {
    const std::size_t size = columns_of(word);
    if (!first && column + 1 + size > width) {
      out += '\n';
      out.append(indent, ' ');
      column = indent;
    } else if (!first) {
      out += ' ';
      ++column;
    }
    out += word;
    column += size;
    first = false;
  }
  return out;
}

std::string aligned(const Rows& rows, std::size_t most) {
  std::vector<std::size_t> width, least;
  for (const auto& row : rows) {
    width.resize(std::max(width.size(), row.size()), 0);
    least.resize(width.size(), 0);
    for (std::size_t i = 0; i < row.size(); ++i) {
      width[i] = std::max(width[i], columns_of(row[i]));
      for (const std::string_view word : words_of(row[i])) least[i] = std::max(least[i], columns_of(word));
    }
  }
  if (width.empty()) return std::string(rows.size(), '\n');
  std::vector<std::string> names = rows.front();
  names.resize(width.size());
  for (std::size_t i = 0; i < width.size(); ++i) least[i] = std::min(width[i], std::max(least[i], kLeast));
  const std::size_t beside = side_by_side(width, least, most);
  const bool below = beside < width.size();
  width.resize(beside), least.resize(beside);
  if (most > 0) narrow(width, least, most);
  std::string text;
  for (const auto& row : rows) {
    std::vector<std::string> cells = row;
    cells.resize(std::min(cells.size(), beside));
    text += row_text(cells, width);
    if (!below || (&row == &rows.front() && names.size() > beside + 1)) continue;
    if (const std::string more = named_values(names, row, beside); !more.empty())
      text += std::string(kBelow, ' ') + wrapped(more, most, kBelow, kBelow) + '\n';
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
