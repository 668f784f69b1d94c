#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

#include "fuzz/plan/covering_search.h"

namespace samestate {

void CoveringSearch::thin(std::span<const Case> given) {
  Uses uses(factors_, met_, start_);
  for (const Case& c : given) uses.count(c, 1);
  for (const Case& c : cases_) uses.count(c, 1);
  drop(uses);
  for (const std::size_t i : dearest_first()) {
    if (stopped()) return;
    const double work = work_of(kernel_, cases_[i]);
    if (work <= options_.usual) break;
    const Needs needs = uses.needs(cases_[i]);
    uses.count(cases_[i], -1);
    make_lighter(cases_[i], needs, work);
    std::vector<Case> parts = apart(cases_[i], needs);
    if (parts.empty()) parts.push_back(std::move(cases_[i]));
    for (const Case& part : parts) uses.count(part, 1);
    cases_[i] = std::move(parts.back());
    parts.pop_back();
    cases_.insert(cases_.end(), std::make_move_iterator(parts.begin()), std::make_move_iterator(parts.end()));
  }
  drop(uses);
}

std::vector<std::size_t> CoveringSearch::dearest_first() const {
  std::vector<double> work;
  for (const Case& c : cases_) work.push_back(work_of(kernel_, c));
  std::vector<std::size_t> order(cases_.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return work[a] > work[b]; });
  return order;
}

void CoveringSearch::drop(Uses& uses) {
  std::vector<bool> dropped(cases_.size());
  for (const std::size_t i : dearest_first()) {
    if (stopped()) return;
    const Needs needs = uses.needs(cases_[i]);
    dropped[i] = needs.combinations.empty() && needs.values.empty();
    if (dropped[i]) uses.count(cases_[i], -1);
  }
  std::size_t i = 0;
  std::erase_if(cases_, [&](const Case&) { return dropped[i++]; });
}

void CoveringSearch::make_lighter(Case& c, const Needs& needs, double work) const {
  std::vector<bool> kept(factors_.size());
  for (const std::size_t f : needs.values) kept[f] = true;
  for (const std::int64_t at : needs.combinations) {
    const std::vector<int> levels = met_.levels(at);
    for (std::size_t f = 0; f < levels.size(); ++f) kept[f] = kept[f] || levels[f] >= 0;
  }
  const auto has_all = [&](const Case& lighter) {
    const std::vector<std::int64_t> has = met_.of(levels_of(factors_, lighter));
    const std::set<std::int64_t> all(has.begin(), has.end());
    return std::all_of(needs.combinations.begin(), needs.combinations.end(),
                       [&](std::int64_t at) { return all.contains(at); }) &&
           std::all_of(needs.values.begin(), needs.values.end(), [&](std::size_t f) {
             return factors_[f].value(lighter) == factors_[f].value(c) && shown(f, lighter) >= shown(f, c);
           });
  };
  const Dice chance = dice();
  for (const double part : {0.0, 0.05, 0.1, 0.2, 0.4, 0.6}) {
    Case lighter = c;
    (void)afford(lighter, kernel_, factors_, kept, std::max(options_.usual, part * work), chance);
    if (lighter.T < std::min(c.T, kFewTokens) || work_of(kernel_, lighter) > kWorthKeeping * work ||
        !has_all(lighter) || !within_limits(kernel_, lighter))
      continue;
    c = std::move(lighter);
    return;
  }
}

std::vector<Case> CoveringSearch::apart(const Case& c, const Needs& needs) const {
  const double most = kWorthKeeping * (work_of(kernel_, c) + kCaseItself);
  const Dice chance = dice();
  const std::vector<int> none(factors_.size(), -1);
  std::vector<Case> out;
  std::set<std::int64_t> met;
  double work = 0.0;
  const auto put = [&](const std::vector<int>& wanted, const Factor* size, Index value) {
    const double usual = std::min(limit(wanted, size, value, chance), options_.most);
    const Exposure of_size = size != nullptr ? exposure(*size, c, start_) : Exposure::little;
    for (const Try::Free free : {Try::Free::no_size, Try::Free::none}) {
      std::vector<int> levels = choose(wanted, free, chance);
      if (of_size > Exposure::little) leave_plain(levels);
      Failure why;
      std::optional<Case> part = attempt(wanted, levels, size, value, true, usual, chance, why);
      if (!part || part->T < std::min(c.T, kFewTokens)) continue;
      if (size != nullptr && exposure(*size, *part, start_) < of_size) continue;
      work += work_of(kernel_, *part) + kCaseItself;
      const std::vector<std::int64_t> has = met_.of(levels_of(factors_, *part));
      met.insert(has.begin(), has.end());
      out.push_back(std::move(*part));
      return work < most;
    }
    return false;
  };
  for (const std::size_t f : needs.values) {
    if (!put(none, &factors_[f], factors_[f].value(c))) return {};
  }
  for (const std::int64_t at : needs.combinations) {
    if (!met.contains(at) && !put(met_.levels(at), nullptr, 0)) return {};
  }
  return out;
}

}  // namespace samestate
