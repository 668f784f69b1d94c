#include "reports/text/escape.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace samestate {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

/// One UTF-8 character at the beginning of `text`: its length and code point, or length 0 if the bytes are
/// not UTF-8.
struct Character {
  std::size_t length;
  std::uint32_t code;
};

Character decode(std::string_view text) {
  const auto byte = [&](std::size_t i) {
    return static_cast<std::uint32_t>(static_cast<unsigned char>(text[i]));
  };
  const std::uint32_t head = byte(0);
  if (head < 0x80) return {1, head};
  const std::size_t length = head >= 0xF0 && head < 0xF8   ? 4
                             : head >= 0xE0 && head < 0xF0 ? 3
                             : head >= 0xC0 && head < 0xE0 ? 2
                                                           : 0;
  if (length == 0 || text.size() < length) return {0, 0};
  std::uint32_t code = head & (0x7FU >> length);
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0U) != 0x80U) return {0, 0};
    code = code << 6 | (byte(i) & 0x3FU);
  }
  constexpr std::uint32_t smallest[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = code >= 0xD800 && code < 0xE000;
  if (code < smallest[length] || code > 0x10FFFF || surrogate) return {0, 0};
  return {length, code};
}

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
    const auto [length, code] = decode(text);
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
