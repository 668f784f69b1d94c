#include "harness/cases/case_line.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "harness/cases/keys.h"
#include "harness/cases/resolved.h"
#include "reference/error.h"

namespace samestate {
namespace {

constexpr std::size_t kLongestLine = 16384;
/// The longest word of a line: a message quotes the word and must stay one readable line. Only lengths= lists
/// more.
constexpr std::size_t kLongestWord = 512;

std::vector<std::string_view> words(std::string_view line) {
  std::vector<std::string_view> out;
  while (!line.empty()) {
    const std::size_t begin = line.find_first_not_of(" \t\r\n");
    if (begin == std::string_view::npos) break;
    const std::size_t end = std::min(line.find_first_of(" \t\r\n", begin), line.size());
    out.push_back(line.substr(begin, end - begin));
    line.remove_prefix(end);
  }
  return out;
}

}  // namespace

Case parse_case(std::string_view line) {
  if (line.size() > kLongestLine) {
    throw Error(fmt::format("case line of {} characters: at most {} are read; name one case", line.size(),
                            kLongestLine));
  }
  // This keeps whatever a message quotes from the line on one line, and without effect on a terminal.
  for (std::size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if ((c >= 0x20 && c < 0x7f) || c == '\t' || c == '\r' || c == '\n') continue;
    throw Error(fmt::format("case line contains byte {:#04x} at position {}: write printable ASCII",
                            static_cast<unsigned>(static_cast<unsigned char>(c)), i));
  }
  const std::vector<std::string_view> parts = words(line);
  if (parts.empty())
    throw Error("empty case line: write 'v1 SYSTEM key=value ...', e.g. 'v1 gated_delta_rule T=65'");
  for (const std::string_view part : parts) {
    if (part.size() <= kLongestWord || part.starts_with("lengths=")) continue;
    throw Error(fmt::format(
        "case line contains a word of {} characters, '{}..': at most {} are read; write key=value, "
        "separated by blanks",
        part.size(), part.substr(0, 40), kLongestWord));
  }
  if (std::ranges::any_of(systems(), [&](const System* known) { return known->name == parts[0]; }))
    throw Error(fmt::format("case line without its version: write 'v1 {} ...'", parts[0]));
  if (parts[0] != "v1") {
    throw Error(
        fmt::format("case line starts with '{}': this build reads version v1; write 'v1 SYSTEM key=value "
                    "...', or take the build that printed the line",
                    parts[0]));
  }
  if (parts.size() < 2 || parts[1].find('=') != std::string_view::npos) {
    throw Error(
        "case line names no system: write 'v1 SYSTEM key=value ...'; `samestate list systems` shows them");
  }
  const bool backward = std::ranges::find(parts, "pass=backward") != parts.end() && !is_backward(parts[1]);
  const System& system = backward ? backward_of(parts[1]) : system_named(parts[1]);
  Case c = system.standard();
  std::set<std::string_view> seen;
  for (std::size_t i = 2; i < parts.size(); ++i) {
    const std::size_t equals = parts[i].find('=');
    const std::string_view name = parts[i].substr(0, equals);
    const auto size = c.parameters.find(name);
    if (size == c.parameters.end() && !system.has_key(name)) {
      std::vector<std::string_view> known = system.keys;
      for (const CaseSize& other : system.sizes) {
        if (other.own) known.push_back(other.name);
      }
      throw Error(fmt::format("unknown key '{}' in case line of {}{}; known keys are {}", name, c.system,
                              meant_key(name, known), fmt::join(known, ", ")));
    }
    if (equals == std::string_view::npos || equals + 1 == parts[i].size()) {
      throw Error(fmt::format("key '{}' has no value: write {}=VALUE", name, name));
    }
    if (!seen.insert(name).second)
      throw Error(fmt::format("key '{}' occurs twice in the case line: leave one out", name));
    const std::string_view value = parts[i].substr(equals + 1);
    if (size != c.parameters.end()) {
      size->second = whole_number(name, value, 0, kLargestExtent);
    } else {
      key_named(name)->parse(c, value);
    }
  }
  if (!seen.contains("Hv")) c.Hv = c.Hk;
  if (!seen.contains("dv")) c.dv = c.dk;
  if (!seen.contains("T") && !c.lengths.empty()) c.T = std::reduce(c.lengths.begin(), c.lengths.end());
  (void)Resolved(c);
  return c;
}

std::string format_case(const Case& c) {
  const System& system = system_named(c.system);
  std::string out = fmt::format("v1 {}", forward_name(c.system));
  const auto put = [&](std::string_view key, std::string_view value) {
    if (!value.empty()) out += fmt::format(" {}={}", key, value);
  };
  for (const Key& key : keys()) {
    // Sizes that only this system has are printed where the family's sizes are.
    if (key.name == "contract") {
      for (const CaseSize& size : system.sizes) {
        const auto value = c.parameters.find(size.name);
        if (value != c.parameters.end() && value->second != size.standard)
          put(size.name, std::to_string(value->second));
      }
    }
    if (c.parameters.contains(key.name)) continue;
    if (!system.has_key(key.name)) continue;
    if (key.name == "form" && c.form == system.forms.front().name) continue;
    put(key.name, key.print(c));
  }
  return out;
}

const System& backward_of(std::string_view name) {
  const std::string wanted = std::string(system_named(name).name).append(kBackward);
  std::vector<std::string_view> known;
  for (const System* one : systems()) {
    if (one->name == wanted) return *one;
    if (is_backward(one->name)) known.push_back(forward_name(one->name));
  }
  throw Error(fmt::format("pass=backward: the gradients of {} are not judged yet; systems with gradients: {}",
                          name, fmt::join(known, ", ")));
}

std::vector<std::int64_t> offsets_of(const Case& c) {
  std::vector<std::int64_t> offsets{0};
  for (const std::int64_t length : c.lengths) offsets.push_back(offsets.back() + length);
  return offsets;
}

}  // namespace samestate
