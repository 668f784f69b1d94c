#include <fmt/format.h>

#include <array>
#include <cstdio>
#include <string>
#include <string_view>

#include "reports/plots/plots.h"

/// Makes gnuplot's SVG small and themable, and removes everything that a page would have to trust.
namespace samestate {
namespace {

/// The point types that the plots use, as paths; gnuplot refers to them by ids, which would clash in one
/// page.
struct Symbol {
  std::string_view name;
  std::string_view shape;
};
constexpr std::array kSymbols = {
    Symbol{"gpPt6", "<path fill='currentColor' stroke='none' d='M-1,0a1,1 0 1 0 2,0a1,1 0 1 0 -2,0z'"},
    Symbol{"gpPt7", "<path stroke-width='.3' fill='none' stroke='currentColor' d='M-1,-1H1V1H-1z'"},
    Symbol{"gpPt14", "<path stroke-width='.45' fill='none' stroke='currentColor' d='M-1.6,0H1.6'"},
};

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  for (std::size_t at = text.find(from); at != text.npos; at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
}

/// Returns the text between `open` and `close`; empty if either is missing.
std::string_view between(std::string_view text, std::string_view open, std::string_view close) {
  const std::size_t begin = text.find(open);
  if (begin == text.npos) return {};
  const std::size_t end = text.find(close, begin + open.size());
  if (end == text.npos) return {};
  return text.substr(begin + open.size(), end - begin - open.size());
}

/// Writes rgb(  0, 114, 178) as #0072b2.
std::string with_hex_colours(std::string_view text) {
  std::string out;
  while (true) {
    const std::size_t at = text.find("rgb(");
    if (at == text.npos) return out + std::string(text);
    const std::size_t end = text.find(')', at);
    int red = 0;
    int green = 0;
    int blue = 0;
    if (end == text.npos || std::sscanf(std::string(text.substr(at, end - at + 1)).c_str(), "rgb(%d,%d,%d)",
                                        &red, &green, &blue) != 3) {
      return out + std::string(text);
    }
    out += text.substr(0, at);
    out += fmt::format("#{:02x}{:02x}{:02x}", red, green, blue);
    text.remove_prefix(end + 1);
  }
}

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '&') {
      out += "&amp;";
    } else if (c == '<') {
      out += "&lt;";
    } else if (c == '>') {
      out += "&gt;";
    } else if (c == '"') {
      out += "&quot;";
    } else {
      out += c;
    }
  }
  return out;
}

/// Replaces <use ...#gpPt6 ... color='c'/> by a path of its own.
std::string with_symbols(std::string line) {
  for (const Symbol& symbol : kSymbols) {
    replace_all(line, fmt::format("<use xlink:href='#{}'", symbol.name), symbol.shape);
  }
  return line;
}

/// Replaces gnuplot's script calls in the group of a mark by data.
std::string with_marks(std::string line) {
  const std::string_view text = between(line, "showHypertext(evt,'", "')");
  if (text.empty()) return line;
  const std::size_t bar = text.find('|');
  const std::string point(text.substr(0, bar));
  const std::string name(bar == text.npos ? "" : text.substr(bar + 1));
  const std::size_t begin = line.find("<g onmousemove");
  const std::size_t end = line.find("</title>", begin);
  if (begin == line.npos || end == line.npos) return line;
  if (point.find_first_not_of("0123456789") != point.npos)
    return line.substr(0, begin) + "<g>" + line.substr(end + 8);
  return line.substr(0, begin) +
         fmt::format("<g class=\"mark\" data-point=\"{}\"><title>{}</title>", point, escaped(name)) +
         line.substr(end + 8);
}

bool opens_group(std::string_view line) { return line.starts_with("<g fill=") && line.ends_with(">"); }

}  // namespace

std::string svg_fragment(const std::string& svg) {
  std::string body = with_hex_colours(svg);
  // The canvas' group is open at that point; nothing before the end of the definitions is drawn.
  const std::size_t defs = body.find("</defs>");
  if (defs == body.npos) return "";
  const std::size_t begin = defs + 7;
  const std::string box(between(body, "viewBox=\"", "\""));
  std::string out = fmt::format(
      "<svg viewBox=\"{}\" xmlns=\"http://www.w3.org/2000/svg\" role=\"img\">\n<g>\n", escaped(box));
  // A group that opens and closes at once draws nothing.
  std::string pending;
  std::size_t position = begin;
  while (position < body.size()) {
    std::size_t end = body.find('\n', position);
    if (end == body.npos) end = body.size();
    std::string line = body.substr(position, end - position);
    position = end + 1;
    const std::size_t first = line.find_first_not_of(" \t");
    if (first == line.npos) continue;
    line = line.substr(first);
    if (line.starts_with("<g id=") || line.starts_with("<rect x=\"0\"")) {
      // A plot's own group has an id and a title without information.
      line = line.starts_with("<g id=") ? "<g>" : "";
      if (line.empty()) continue;
    }
    if (opens_group(line)) {
      if (!pending.empty()) out += pending + "\n";
      pending = line;
      continue;
    }
    if (line == "</g>" && !pending.empty()) {
      pending.clear();
      continue;
    }
    if (!pending.empty()) {
      out += pending + "\n";
      pending.clear();
    }
    out += with_marks(with_symbols(std::move(line))) + "\n";
  }
  replace_all(out, " font-family=\"sans-serif\"", "");
  replace_all(out, " stroke-linecap=\"butt\" stroke-linejoin=\"miter\"", "");
  replace_all(out, "stroke='black'", "stroke='#1a1a1a'");
  replace_all(out, "color=\"black\"", "color=\"#1a1a1a\"");
  replace_all(out, "color=\"gray\"", "color=\"#dddddd\"");
  replace_all(out, "fill=\"black\"", "fill=\"#1a1a1a\"");
  replace_all(out, "  '/>", "'/>");
  replace_all(out, " class=\"gridline\" ", "");
  return out;
}

std::string svg_file(const std::string& fragment) {
  std::string dark;
  const auto add = [&](const PaletteEntry& entry) {
    for (const char* property : {"fill", "stroke", "color"}) {
      dark += fmt::format("[{0}=\"{1}\"]{{{0}:{2}}}", property, entry.light, entry.dark);
    }
  };
  for (const PaletteEntry& entry : palette()) add(entry);
  add(failure_colour());
  for (const PaletteEntry& entry : inks()) add(entry);
  const std::size_t open = fragment.find(">\n");
  if (open == fragment.npos) return fragment;
  std::string out = fragment.substr(0, open + 2);
  out += fmt::format(
      "<style>text{{font-family:system-ui,sans-serif}}@media(prefers-color-scheme:dark){{{}}}</style>\n",
      dark);
  out += fragment.substr(open + 2);
  return out;
}

}  // namespace samestate
