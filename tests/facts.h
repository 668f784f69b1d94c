#pragma once

#include <algorithm>
#include <cctype>
#include <sstream>
#include <string>
#include <string_view>

/// What tests ask of a message: the facts in it, not its sentences.
namespace samestate {

/// Of facts that spaces divide (keys, values, limits, names of options) those that the text lacks, each behind a space; empty where
/// it has all. A number stands by itself: 1 is neither in 12 nor in v1 nor in 0.1.
inline std::string lacking(std::string_view text, std::string_view facts) {
  const auto part_of_a_word = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
  };
  const auto digit = [](char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; };
  const auto alone = [&](std::size_t begin, std::size_t end) {
    if (begin > 0 && (part_of_a_word(text[begin - 1]) || text[begin - 1] == '.')) return false;
    if (end == text.size()) return true;
    const bool fraction = text[end] == '.' && end + 1 < text.size() && digit(text[end + 1]);
    return !part_of_a_word(text[end]) && !fraction;
  };
  std::string out;
  std::istringstream words{std::string(facts)};
  for (std::string fact; words >> fact;) {
    const bool number = std::ranges::all_of(fact, [&](char c) { return digit(c) || c == '.'; });
    std::size_t at = text.find(fact);
    while (number && at != text.npos && !alone(at, at + fact.size())) at = text.find(fact, at + 1);
    if (at == text.npos) out += " " + fact;
  }
  return out;
}

}  // namespace samestate
