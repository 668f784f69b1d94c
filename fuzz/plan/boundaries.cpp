#include "fuzz/plan/boundaries.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>

namespace samestate {
namespace {

constexpr Index kFewValues = 8;   // values of a switch, or of a size that hardly varies
constexpr Index kEachValue = 16;  // values of an unrolled size: a kernel has code of its own for each

void around(std::set<Index>& values, Index at) {
  for (const Index beside : {-1, 0, 1}) values.insert(at + beside);
}

}  // namespace

std::vector<Index> boundaries(Index least, Index most) {
  std::set<Index> values;
  for (Index value = 0; value < 10; ++value) values.insert(value);
  for (Index power = 8; power <= most + 1; power *= 2) around(values, power);
  // {step, up to}: tiles of warps, of matrix units, of blocks and of whole heads.
  static constexpr std::array<std::array<Index, 2>, 7> kSteps{
      {{8, 64}, {16, 128}, {32, 128}, {64, 256}, {128, 512}, {192, 384}, {256, 1024}}};
  for (const auto& [step, last] : kSteps) {
    for (Index at = step; at <= std::min(last, most + 1); at += step) around(values, at);
  }
  for (Index at = 8; at <= std::min<Index>(256, most); at += 8) values.insert(at);
  // Widths of models are small multiples of a power of two.
  for (const Index times : {3, 5, 7, 9, 11}) {
    for (Index at = 32 * times; at <= most; at *= 2) values.insert(at);
  }
  if (most <= kEachValue) {
    for (Index value = least; value <= most; ++value) values.insert(value);
  }
  for (const Index prime : {11, 37, 53, 101, 211, 401, 727, 1531, 3001}) values.insert(prime);
  std::vector<Index> out;
  std::copy_if(values.begin(), values.end(), std::back_inserter(out),
               [&](Index value) { return value >= least && value <= most; });
  return out;
}

std::vector<Band> bands(Index least, Index most) {
  std::vector<Band> out;
  if (most - least < kFewValues) {
    for (Index value = least; value <= most; ++value)
      out.push_back({fmt::format("{}", value), value, value, Band::Members::every, {value}});
    return out;
  }
  static constexpr std::array<Index, 7> kBegins{0, 1, 2, 8, 32, 128, 512};
  constexpr Index kTiled = 128;  // a smaller size fills some tiles and not others
  const std::vector<Index> all = boundaries(least, most);
  for (std::size_t i = 0; i < kBegins.size(); ++i) {
    const Index from = std::max(least, kBegins[i]);
    const Index to = std::min(most, i + 1 < kBegins.size() ? kBegins[i + 1] - 1 : most);
    if (from > to) continue;
    const std::string name = from == to ? fmt::format("{}", from) : fmt::format("{}-{}", from, to);
    using enum Band::Members;
    const auto put = [&](Band band) {
      std::copy_if(all.begin(), all.end(), std::back_inserter(band.values),
                   [&](Index value) { return band.holds(value); });
      if (!band.values.empty()) out.push_back(std::move(band));
    };
    if (from < 8 || from >= kTiled) {
      put({name, from, to, every, {}});
    } else {
      put({name, from, to, odd, {}});
      put({name + "/8", from, to, aligned, {}});
    }
  }
  return out;
}

}  // namespace samestate
