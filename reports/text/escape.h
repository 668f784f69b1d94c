#pragma once

#include <string>
#include <string_view>

/// Text of a record, which may hold anything, for each place that it is written to.
namespace samestate {

/// UTF-8 that XML 1.0 allows: characters that it forbids are dropped, bytes that are not UTF-8 become U+FFFD.
[[nodiscard]] std::string xml_safe(std::string_view text);

/// One line of UTF-8: control characters, which would move a terminal's cursor, become spaces, and bytes that
/// are not UTF-8 U+FFFD.
[[nodiscard]] std::string on_one_line(std::string_view text);

/// on_one_line, with whatever Markdown or HTML could take as markup escaped: for a paragraph or the cell of a
/// table. An underscore after a letter is none, nor is a bracket that begins no link.
[[nodiscard]] std::string markdown_cell(std::string_view text);

/// For an element of HTML or a quoted attribute: markup is escaped, control characters become spaces, and bytes
/// that are not UTF-8 become U+FFFD.
[[nodiscard]] std::string html_escaped(std::string_view text);

}  // namespace samestate
