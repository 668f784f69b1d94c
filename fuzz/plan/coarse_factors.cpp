#include "fuzz/plan/coarse_factors.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

namespace samestate {
namespace {

constexpr Index kTile = 64;

/// Returns a size's values beyond `most_of_start`, preferring those that models have.
std::vector<Index> beyond(const Factor& size, Index most_of_start, bool counts) {
  const Index from = counts || size.name == "T" ? most_of_start + 1 : 2 * kTile;
  const Index to = counts ? 3 * most_of_start + 2 : 2 * kTile + 8;
  std::vector<Index> out;
  for (const Index value : size.values) {
    if (value >= from && value <= to) out.push_back(value);
  }
  for (const Index value : size.values) {
    if (out.empty() && value > most_of_start) out.push_back(value);
  }
  return out;
}

/// Returns nothing if a size has no values beyond its start.
std::vector<Factor> coarse_size(const Factor& size, const Case& start) {
  constexpr Index kCount = 6;
  const Index of_start = size.value(start);
  const bool counts = of_start <= kCount || size.values.back() <= kTile;
  const Index most_of_start = counts ? of_start : std::max(of_start, kTile);
  const std::vector<Index> values = beyond(size, most_of_start, counts);
  if (values.empty()) return {};
  Factor f{size.name, {"few", "beyond"}, 3, size.dear};
  f.fixes = size.fixes;
  f.enable = size.enable;
  f.level = [value = size.value, most_of_start](const Case& c) { return value(c) > most_of_start ? 1 : 0; };
  f.put = [put = size.put_value, values, of_start](Case& c, int level, const Dice& dice) {
    put(c, level == 0 ? of_start : dice.pick(values));
  };
  // This lets the work limit lower it; the pairs cover its boundaries.
  f.value = size.value;
  f.put_value = size.put_value;
  f.values = {size.values.front()};
  f.put_least = [put = size.put_value, values, of_start](Case& c, int level) {
    put(c, level == 0 ? of_start : values.front());
  };
  return {f};
}

/// One level for those below `cut` and one for the others, of which `put` chooses those up to `most`.
Factor halves(const Factor& of, int cut, int most) {
  Factor f{of.name, {"less", "more"}, 3, of.dear};
  f.fixes = of.fixes;
  f.enable = of.enable;
  f.level = [level = of.level, cut](const Case& c) {
    const int at = level(c);
    return at < 0 ? -1 : at < cut ? 0 : 1;
  };
  f.put = [put = of.put, cut, most](Case& c, int level, const Dice& dice) {
    put(c, static_cast<int>(level == 0 ? dice.below(cut) : cut + dice.below(most - cut + 1)), dice);
  };
  return f;
}

/// One level for the case's initial value and one for all others.
Factor otherwise(const Factor& of, int standard) {
  Factor f{of.name, {"standard", "other"}, 3, of.dear};
  f.fixes = of.fixes;
  f.enable = of.enable;
  f.level = [level = of.level, standard](const Case& c) {
    const int at = level(c);
    return at < 0 ? -1 : at == standard ? 0 : 1;
  };
  f.put = [put = of.put, standard, count = static_cast<int>(of.levels.size())](Case& c, int level,
                                                                               const Dice& dice) {
    const int other = static_cast<int>(dice.below(count - 1));
    put(c, level == 0 ? standard : other + (other >= standard ? 1 : 0), dice);
  };
  return f;
}

}  // namespace

std::vector<Factor> coarse_factors_of(const KernelRow& kernel) {
  static constexpr std::array<std::string_view, 7> kNone{"regime", "law",   "threads", "T:chunk",
                                                         "chunk",  "dk:dv", "taps"};
  constexpr int kMoreThanEight = 2, kMany = 3, kSome = 2, kAll = 3;  // levels of sequences and of prefill
  const Case start = start_of(kernel);
  std::vector<Factor> out;
  for (const Factor& factor : covered_factors_of(kernel)) {
    if (std::ranges::find(kNone, factor.name) != kNone.end() || factor.levels.size() < 2) continue;
    if (factor.value) {
      for (Factor& size : coarse_size(factor, start)) out.push_back(std::move(size));
    } else if (factor.name == "sequences") {
      out.push_back(halves(factor, kMoreThanEight, kMany));
    } else if (factor.name == "prefill") {
      out.push_back(halves(factor, kSome, kAll));
    } else if (const int standard = factor.level(start); standard >= 0 && factor.name != "form") {
      out.push_back(otherwise(factor, standard));
    } else {
      out.push_back(factor);
    }
  }
  return out;
}

}  // namespace samestate
