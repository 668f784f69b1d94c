#include "reports/text/escape.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "fixtures/quote.h"

namespace samestate {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

/// XML 1.0, production 2.
bool is_xml_character(std::uint32_t code) {
  return code == '\t' || code == '\n' || code == '\r' || (code >= 0x20 && code != 0xFFFE && code != 0xFFFF);
}

/// An underscore after one of these opens no emphasis, and emphasis that is not open cannot be closed
/// (CommonMark 6.2).
bool is_word(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9'); }

}  // namespace

std::string xml_safe(std::string_view text) {
  std::string safe;
  safe.reserve(text.size());
  while (!text.empty()) {
    const auto [length, code] = utf8_character(text);
    if (length == 0) {
      safe += kReplacement;
      text.remove_prefix(1);
      continue;
    }
    if (is_xml_character(code)) safe += text.substr(0, length);
    text.remove_prefix(length);
  }
  return safe;
}

std::string on_one_line(std::string_view text) {
  std::string line(text);
  std::replace_if(
      line.begin(), line.end(), [](unsigned char c) { return c < 0x20 || c == 0x7F; }, ' ');
  return xml_safe(line);
}

std::string markdown_cell(std::string_view text) {
  const std::string line = on_one_line(text);
  std::string out;
  for (std::size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    const char next = i + 1 < line.size() ? line[i + 1] : ' ';
    const bool opens = c == '_' && !(i > 0 && is_word(line[i - 1]));
    const bool link = c == ']' && (next == '(' || next == '[');
    if (c == '<' || c == '&') {
      out += c == '<' ? "&lt;" : "&amp;";
      continue;
    }
    if (std::string_view("\\`*|~").find(c) != std::string_view::npos || opens || link) out += '\\';
    out += c;
  }
  return out;
}

std::string html_escaped(std::string_view text) {
  std::string out;
  for (const char c : xml_safe(text)) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    }
  }
  return out;
}

}  // namespace samestate
