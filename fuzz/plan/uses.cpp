#include "fuzz/plan/uses.h"

#include <algorithm>
#include <utility>

namespace samestate {

Exposure exposure(const Factor& size, const Case& c, const Case& start) {
  if (!c.law.empty() || c.regime != start.regime || (size.enable == nullptr && c.form != start.form))
    return Exposure::little;
  return size.name == "T" || c.T >= std::min(start.T, kFewTokens) ? Exposure::all : Exposure::most;
}

Uses::Uses(const std::vector<Factor>& factors, const Combinations& combinations, Case start)
    : factors_(factors),
      combinations_(combinations),
      times_(static_cast<std::size_t>(combinations.size())),
      start_(std::move(start)) {}

void Uses::count(const Case& c, std::int32_t by) {
  for (const std::int64_t at : combinations_.of(levels_of(factors_, c)))
    times_[static_cast<std::size_t>(at)] += by;
  for (std::size_t f = 0; f < factors_.size(); ++f) {
    if (!factors_[f].value) continue;
    Times& times = values_[{f, factors_[f].value(c)}];
    for (int i = 0; i <= static_cast<int>(exposure(factors_[f], c, start_)); ++i)
      times.at(static_cast<std::size_t>(i)) += by;
  }
}

Needs Uses::needs(const Case& c) const {
  Needs needs;
  for (const std::int64_t at : combinations_.of(levels_of(factors_, c))) {
    if (times_[static_cast<std::size_t>(at)] <= 1) needs.combinations.push_back(at);
  }
  for (std::size_t f = 0; f < factors_.size(); ++f) {
    if (!factors_[f].value) continue;
    const Index value = factors_[f].value(c);
    const std::vector<Index>& all = factors_[f].values;
    if (!std::binary_search(all.begin(), all.end(), value)) continue;
    const Times& times = values_.at({f, value});
    if (times.at(static_cast<std::size_t>(exposure(factors_[f], c, start_))) <= 1) needs.values.push_back(f);
  }
  return needs;
}

}  // namespace samestate
