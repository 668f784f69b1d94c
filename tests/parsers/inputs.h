#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace samestate::testing {

/// Where inputs come from: right ones, and words that belong to their language.
struct Seeds {
  std::vector<std::string> right;
  std::vector<std::string> words;
};

/// Numbers drawn one after another (Steele, Lea, Flood, 2014: SplitMix64), of a seed and a number: to begin costs nothing, where a Mersenne twister
/// takes a third of the time of a small input.
class Drawn {
 public:
  Drawn(std::uint64_t seed, std::uint64_t number) : state_(mixed(seed) ^ number * kStep) {}
  std::uint64_t operator()() { return mixed(state_ += kStep); }

 private:
  static constexpr std::uint64_t kStep = 0x9e3779b97f4a7c15;
  static std::uint64_t mixed(std::uint64_t x) {
    x = (x ^ x >> 30U) * 0xbf58476d1ce4e5b9;
    x = (x ^ x >> 27U) * 0x94d049bb133111eb;
    return x ^ x >> 31U;
  }
  std::uint64_t state_;
};

/// `depth` lists or objects inside one another. Those as deep as no stack are made once.
inline std::string nested_text(bool lists, std::size_t depth) {
  static constexpr std::size_t kDeep = 1'000'000;
  const auto made = [](bool of_lists, std::size_t n) {
    const std::string_view open = of_lists ? "[" : "{\"a\":";
    std::string text;
    text.reserve(n * (open.size() + 1) + 1);
    for (std::size_t i = 0; i < n; ++i) text += open;
    text += of_lists ? "" : "0";
    text.append(n, of_lists ? ']' : '}');
    return text;
  };
  static const std::array<std::string, 2> deepest{made(false, kDeep), made(true, kDeep)};
  return depth == kDeep ? deepest[lists ? 1 : 0] : made(lists, depth);
}

/// The input of that number: a right one with a few edits of the kinds that parsers are wrong about. Of a seed it is the
/// same on every machine.
inline std::string fuzzed(const Seeds& seeds, std::uint64_t seed, std::uint64_t number) {
  static constexpr std::array<std::string_view, 18> kHard{"0",
                                                          "-1",
                                                          "1e308",
                                                          "-0.0",
                                                          "1e-400",
                                                          "18446744073709551615",
                                                          "9223372036854775807",
                                                          "-9223372036854775808",
                                                          "9223372036854775808",
                                                          "1e999",
                                                          "nan",
                                                          "0x",
                                                          "\\u0000",
                                                          "\\ud800",
                                                          "\xff\xfe",
                                                          "null",
                                                          "true",
                                                          "\n"};
  Drawn bits(seed, number);
  const auto below = [&](std::size_t n) { return static_cast<std::size_t>(bits() % n); };
  const auto one_of = [&](const std::vector<std::string>& list) -> const std::string& {
    return list[below(list.size())];
  };
  std::string text = one_of(seeds.right);
  // One edit in most: of many hardly anything is left that is read.
  for (std::size_t edits = below(3) == 0 ? 1 + below(5) : 1; edits > 0; --edits) {
    if (text.empty()) text = " ";
    // The beginning of a text decides about the rest.
    const std::size_t at = below(8) == 0 ? 0 : below(text.size());
    // A number or a word, from its first character to its last.
    const auto word_at = [&] {
      const auto of_word = [](char c) {
        return std::string_view(" \"=:,[]{}+/").find(c) == std::string_view::npos;
      };
      std::size_t begin = at, end = at;
      while (begin > 0 && of_word(text[begin - 1])) --begin;
      while (end < text.size() && of_word(text[end])) ++end;
      return std::pair(begin, end - begin);
    };
    switch (below(11)) {
      case 0:
        text[at] = static_cast<char>(bits());
        break;
      case 1:
        text.erase(at, 1 + below(8));
        break;
      case 2:
        text.insert(at, text.substr(below(text.size()), below(40)));
        break;
      case 3:
        text.resize(at);
        break;
      case 4:
      case 5: {
        const auto [begin, count] = word_at();
        text.replace(begin, count, seeds.words.empty() ? std::string("x") : one_of(seeds.words));
        break;
      }
      case 6: {
        const auto [begin, count] = word_at();
        text.replace(begin, count, kHard[below(kHard.size())]);
        break;
      }
      case 7:
        text.insert(at, kHard[below(kHard.size())]);
        break;
      case 8: {
        const std::string& other = one_of(seeds.right);
        text = text.substr(0, at) + other.substr(below(other.size() + 1));
        break;
      }
      case 9:
        text.insert(at, std::string(1 + below(300), "[{\"(+ "[below(6)]));
        break;
      default: {
        // A value, whole, becomes one that is nested; rarely as deep as a stack is not.
        auto [begin, count] = word_at();
        if (begin > 0 && text[begin - 1] == '"' && begin + count < text.size() && text[begin + count] == '"')
          --begin, count += 2;
        const std::size_t depth = below(200) == 0 ? 1'000'000 : 1 + below(70);
        const bool lists = below(2) == 0;
        text.replace(begin, count, nested_text(lists, depth));
      }
    }
  }
  return text;
}

}  // namespace samestate::testing
