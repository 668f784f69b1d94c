#include "reports/records/packages.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <vector>

namespace samestate {
namespace {

using nlohmann::ordered_json;

/// Returns true for a package's version, and false for a switch of the environment, a device or an
/// interpreter that is recorded in the same place.
bool is_package(std::string_view name) {
  if (name == "python" || name == "device" || name.empty()) return false;
  return std::ranges::all_of(name, [](char c) {
    return std::islower(static_cast<unsigned char>(c)) != 0 ||
           std::isdigit(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-';
  });
}

/// Returns "mine.py e961848c" for a subject or plugin that is a file, whose versions only the hash tells
/// apart; empty for the name of an adapter.
std::string file_of(std::string_view spec, std::string_view hash) {
  constexpr std::size_t kShown = 8;
  std::string_view name = spec.substr(0, spec.find('?'));
  if (name.starts_with("python:")) name.remove_prefix(7);
  if (const std::size_t end = name.find(".py:"); end != name.npos) name = name.substr(0, end + 3);
  if (!name.ends_with(".py") && !name.ends_with(".so") && name.find('/') == name.npos) return "";
  return fmt::format("{} {}", name.substr(name.rfind('/') + 1), hash.substr(0, kShown));
}

/// Works like packages_of for plugins that do not describe themselves: "mine.so (0123456789abcdef)".
std::string plugin_of(std::string_view plugins, std::string_view options) {
  while (!plugins.empty()) {
    const std::size_t open = plugins.find(" ("), close = plugins.find(')', open);
    if (open == plugins.npos || close == plugins.npos) return "";
    const std::string_view spec = plugins.substr(0, open);
    if (options.find(spec) != options.npos) return file_of(spec, plugins.substr(open + 2, close - open - 2));
    const std::size_t next = plugins.find(", ", close);
    plugins.remove_prefix(next == plugins.npos ? plugins.size() : next + 2);
  }
  return "";
}

}  // namespace

std::string packages_of(std::string_view plugins, std::string_view options) {
  // The text is "SPEC (hash) {..}, SPEC (hash) {..}": the objects are JSON, and a SPEC may contain anything.
  std::vector<std::string> found;
  for (std::size_t at = plugins.find(") {"); at != plugins.npos; at = plugins.find(") {", at + 1)) {
    std::size_t end = at + 2, depth = 0;
    bool text = false;
    for (; end < plugins.size(); ++end) {
      const char c = plugins[end];
      if (text && c == '\\') {
        ++end;
        continue;
      }
      if (c == '"') text = !text;
      if (text) continue;
      if (c == '{') ++depth;
      if (c == '}' && --depth == 0) break;
    }
    if (end >= plugins.size()) break;
    const ordered_json about =
        ordered_json::parse(plugins.substr(at + 2, end - at - 1), nullptr, /*allow_exceptions=*/false);
    const std::size_t open = plugins.rfind(" (", at);
    const std::size_t begin = open == plugins.npos ? plugins.npos : plugins.rfind("}, ", open);
    const std::string_view spec = open == plugins.npos
                                      ? std::string_view()
                                      : plugins.substr(begin == plugins.npos ? 0 : begin + 3,
                                                       open - (begin == plugins.npos ? 0 : begin + 3));
    if (!about.is_object() || spec.empty() || options.find(spec) == options.npos) continue;
    for (const auto& [name, value] : about.items()) {
      if (value.is_string() && is_package(name))
        found.push_back(fmt::format("{} {}", name, value.get<std::string>()));
    }
    if (std::string file = file_of(spec, plugins.substr(open + 2, at - open - 2)); !file.empty())
      found.push_back(std::move(file));
    break;
  }
  return found.empty() ? plugin_of(plugins, options) : fmt::format("{}", fmt::join(found, ", "));
}

}  // namespace samestate
