#pragma once

#include <algorithm>
#include <cctype>
#include <iterator>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

/// Tests ask a message for the facts in it, not for its sentences.
namespace samestate {

/// `facts` are words separated by spaces: keys, values, limits, names of options. Returns those that are
/// missing in the line that has most of them, each after a space; empty if a line has all. A number stands by
/// itself: 1 is neither in 12 nor in v1 nor in 0.1.
inline std::string lacking(std::string_view text, std::string_view facts) {
  const auto part_of_a_word = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
  };
  const auto digit = [](char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; };
  const auto has = [&](std::string_view line, std::string_view fact) {
    const bool number = std::ranges::all_of(fact, [&](char c) { return digit(c) || c == '.'; });
    for (std::size_t at = line.find(fact); at != line.npos; at = line.find(fact, at + 1)) {
      const std::size_t end = at + fact.size();
      const bool begins = at == 0 || (!part_of_a_word(line[at - 1]) && line[at - 1] != '.');
      const bool fraction = end + 1 < line.size() && line[end] == '.' && digit(line[end + 1]);
      if (!number || (begins && !fraction && (end == line.size() || !part_of_a_word(line[end])))) return true;
    }
    return false;
  };
  std::istringstream all{std::string(facts)};
  const std::vector<std::string> wanted(std::istream_iterator<std::string>(all), {});
  std::vector<std::string> least = wanted;
  std::istringstream lines{std::string(text)};
  for (std::string line; std::getline(lines, line);) {
    std::vector<std::string> missing;
    std::ranges::remove_copy_if(wanted, std::back_inserter(missing),
                                [&](const std::string& fact) { return has(line, fact); });
    if (missing.size() < least.size()) least = missing;
  }
  std::string out;
  for (const std::string& fact : least) out += " " + fact;
  return out;
}

}  // namespace samestate
