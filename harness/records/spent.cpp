#include "harness/records/spent.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "reference/error.h"

namespace samestate {
namespace {

struct Time {
  std::string_view name;
  double Spent::*member;
};
constexpr std::array kTimes = {Time{"start", &Spent::start},     Time{"waiting", &Spent::waiting},
                               Time{"compile", &Spent::compile}, Time{"tune", &Spent::tune},
                               Time{"copy", &Spent::copy},       Time{"kernel", &Spent::kernel},
                               Time{"passing", &Spent::passing}};
struct Count {
  std::string_view name;
  std::int64_t Spent::*member;
};
constexpr std::array kCounts = {Count{"calls", &Spent::calls}, Count{"compiled", &Spent::compiled},
                                Count{"loaded", &Spent::loaded}};
constexpr std::string_view kLost = "lost";
/// No case takes as many seconds, or calls.
constexpr double kMost = 1e12;

}  // namespace

Spent& Spent::operator+=(const Spent& other) {
  for (const Time& t : kTimes) this->*t.member += other.*t.member;
  for (const Count& c : kCounts) this->*c.member += other.*c.member;
  lost = lost || other.lost;
  return *this;
}

std::map<std::string, double> numbers_of(const Spent& spent) {
  std::map<std::string, double> out;
  const auto put = [&](std::string_view name, double value) {
    if (value != 0.0) out.emplace(name, value);
  };
  for (const Time& t : kTimes) put(t.name, std::round(spent.*t.member * 1e6) / 1e6);
  for (const Count& c : kCounts) put(c.name, static_cast<double>(spent.*c.member));
  put(kLost, spent.lost ? 1.0 : 0.0);
  return out;
}

Spent spent_of(const std::map<std::string, double>& numbers) {
  Spent out;
  for (const auto& [name, value] : numbers) {
    if (!(value >= 0.0 && value <= kMost))
      throw Error(fmt::format("spent: {} is {}: a number from 0 to {:g}", name, value, kMost));
    bool known = name == kLost;
    if (known) out.lost = value != 0.0;
    for (const Time& t : kTimes) {
      if (t.name == name) out.*t.member = value, known = true;
    }
    for (const Count& c : kCounts) {
      if (c.name == name) out.*c.member = static_cast<std::int64_t>(value), known = true;
    }
    if (!known) throw Error(fmt::format("spent: no such part as {}", name));
  }
  return out;
}

std::string spent_text(const Spent& spent) {
  std::string text;
  for (const auto& [name, value] : numbers_of(spent))
    text += fmt::format("{}{}={}", text.empty() ? "" : " ", name, value);
  return text;
}

Spent parse_spent(std::string_view text) {
  std::map<std::string, double> numbers;
  while (!text.empty()) {
    const std::string_view word = text.substr(0, text.find(' '));
    text.remove_prefix(std::min(word.size() + 1, text.size()));
    const std::size_t equals = std::min(word.find('='), word.size());
    const std::string_view value = word.substr(std::min(equals + 1, word.size()));
    double number = 0.0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    if (error != std::errc{} || end != value.data() + value.size())
      throw Error(fmt::format("spent: damaged part {}", word));
    numbers[std::string(word.substr(0, equals))] = number;
  }
  return spent_of(numbers);
}

}  // namespace samestate
