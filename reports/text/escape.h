#pragma once

#include <string>
#include <string_view>

/// Escapes text from records, which may contain anything, for each kind of output.
namespace samestate {

/// UTF-8 that XML 1.0 allows: forbidden characters are dropped, and bytes that are not UTF-8 become U+FFFD.
[[nodiscard]] std::string xml_safe(std::string_view text);

/// One line of UTF-8: control characters, which would move a terminal's cursor, become spaces, and bytes that
/// are not UTF-8 become U+FFFD.
[[nodiscard]] std::string on_one_line(std::string_view text);

/// on_one_line, with everything escaped that Markdown or HTML could take as markup: for a paragraph or a
/// table cell. An underscore after a letter is not markup, nor is a bracket that does not start a link.
[[nodiscard]] std::string markdown_cell(std::string_view text);

/// For an element of HTML or a quoted attribute: markup is escaped, control characters become spaces, and
/// bytes that are not UTF-8 become U+FFFD.
[[nodiscard]] std::string html_escaped(std::string_view text);

}  // namespace samestate
