#include "fuzz/plan/combinations.h"

#include <algorithm>
#include <initializer_list>
#include <iterator>
#include <utility>

namespace samestate {

Combinations::Combinations(const std::vector<Factor>& factors, int strength) : groups_of_(factors.size()) {
  for (const Factor& factor : factors) {
    if (factor.compares) law_ = counts_.size();
    counts_.push_back(std::ssize(factor.levels));
  }
  std::int64_t size = 0;
  const auto put = [&](std::initializer_list<std::size_t> of) {
    Group group{.count = of.size(), .begin = size};
    std::copy(of.begin(), of.end(), group.factors.begin());
    std::int64_t product = 1;
    for (std::size_t i = group.count; i-- > 0;) {
      const std::size_t f = group.factors[i];
      group.strides[i] = product;
      product *= counts_[f];
      group.of_law = group.of_law || f == law_;
    }
    for (const std::size_t f : of) groups_of_[f].push_back(groups_.size());
    groups_.push_back(group);
    size += product;
  };
  for (std::size_t a = 0; a < factors.size(); ++a) {
    for (std::size_t b = a + 1; b < factors.size(); ++b) {
      if (strength == 2) put({a, b});
      for (std::size_t c = b + 1; strength == 3 && c < factors.size(); ++c) put({a, b, c});
    }
  }
  met_.resize(static_cast<std::size_t>(size));
}

std::int64_t Combinations::index(const Group& group, const std::vector<int>& levels) {
  std::int64_t at = group.begin;
  for (std::size_t i = 0; i < group.count; ++i) {
    const int level = levels[group.factors[i]];
    if (level < 0) return -1;
    at += level * group.strides[i];
  }
  return at;
}

std::int64_t Combinations::fresh(const std::vector<int>& levels) const {
  const bool all = without_law(levels);
  return std::count_if(groups_.begin(), groups_.end(), [&](const Group& group) {
    if (!all && !group.of_law) return false;
    const std::int64_t at = index(group, levels);
    return at >= 0 && !met_[static_cast<std::size_t>(at)];
  });
}

std::vector<std::int64_t> Combinations::of(const std::vector<int>& levels) const {
  const bool all = without_law(levels);
  std::vector<std::int64_t> out;
  for (const Group& group : groups_) {
    if (!all && !group.of_law) continue;
    if (const std::int64_t at = index(group, levels); at >= 0) out.push_back(at);
  }
  return out;
}

std::int64_t Combinations::add(const std::vector<int>& levels) {
  std::int64_t fresh = 0;
  for (const std::int64_t at : of(levels)) {
    if (met_[static_cast<std::size_t>(at)]) continue;
    met_[static_cast<std::size_t>(at)] = true;
    ++fresh;
  }
  met_count_ += fresh;
  return fresh;
}

std::vector<std::int64_t> Combinations::gains(const std::vector<int>& levels, std::size_t factor) const {
  const std::int64_t count = counts_[factor];
  const bool all = without_law(levels);
  std::vector<std::int64_t> fresh(static_cast<std::size_t>(count));
  for (const std::size_t g : groups_of_[factor]) {
    const Group& group = groups_[g];
    if (!all && !group.of_law) continue;
    std::int64_t at = group.begin, stride = 1;  // of level 0, and from one level to the next
    bool whole = true;
    for (std::size_t i = 0; i < group.count && whole; ++i) {
      if (const std::size_t f = group.factors[i]; f == factor) {
        stride = group.strides[i];
      } else {
        whole = levels[f] >= 0;
        at += levels[f] * group.strides[i];
      }
    }
    for (std::int64_t level = 0; whole && level < count; ++level)
      fresh[static_cast<std::size_t>(level)] += !met_[static_cast<std::size_t>(at + level * stride)];
  }
  if (factor == law_) {  // what the case shows without a law is lost with one
    std::vector<int> without = levels;
    without[factor] = -1;
    const std::int64_t lost = this->fresh(without);
    for (std::size_t level = 1; level < fresh.size(); ++level) fresh[level] -= lost;
  }
  return fresh;
}

std::int64_t Combinations::at(std::size_t first, int level, std::size_t second, int other) const {
  // The groups of a factor are in the order of the second one, behind those of the factors before it.
  const std::size_t n = counts_.size();
  const Group& group = groups_[first * n - first * (first + 1) / 2 + second - first - 1];
  return group.begin + level * counts_[second] + other;
}

std::vector<int> Combinations::levels(std::int64_t combination) const {
  std::vector<int> out(counts_.size(), -1);
  const auto after = std::upper_bound(groups_.begin(), groups_.end(), combination,
                                      [](std::int64_t at, const Group& group) { return at < group.begin; });
  const Group& group = *std::prev(after);
  std::int64_t rest = combination - group.begin;
  for (std::size_t i = 0; i < group.count; ++i) {
    out[group.factors[i]] = static_cast<int>(rest / group.strides[i]);
    rest %= group.strides[i];
  }
  return out;
}

}  // namespace samestate
