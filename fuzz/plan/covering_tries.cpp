#include "fuzz/plan/covering_tries.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "fuzz/plan/covering_search.h"
#include "fuzz/plan/never_judged.h"

namespace samestate {

void CoveringSearch::leave_plain(std::vector<int>& levels) const {
  for (std::size_t f = 0; f < factors_.size(); ++f) {
    if (factors_[f].name == "regime" || factors_[f].name == "law" || factors_[f].name == "form")
      levels[f] = -1;
  }
}

std::vector<int> CoveringSearch::choose(std::vector<int> levels, Try::Free free, const Dice& dice) const {
  if (free == Try::Free::none) return levels;
  std::vector<std::size_t> order(factors_.size());
  std::iota(order.begin(), order.end(), 0);
  for (std::size_t i = order.size(); i > 1; --i)
    std::swap(order[i - 1], order[static_cast<std::size_t>(dice.below(static_cast<std::int64_t>(i)))]);
  for (const std::size_t f : order) {
    if (levels[f] >= 0) continue;
    if (factors_[f].dear &&
        (free == Try::Free::no_size || (free == Try::Free::half_of_sizes && dice.one_in(2))))
      continue;
    const auto count = static_cast<int>(factors_[f].levels.size());
    const auto first = static_cast<int>(dice.below(count));
    const std::vector<std::int64_t> gains = met_.gains(levels, f);
    const bool tokens = factors_[f].name == "T";
    std::int64_t most = -1;
    int best = first;
    for (int i = 0; i < count; ++i) {
      const int level = (first + i) % count;
      const std::int64_t gain = gains[static_cast<std::size_t>(level)];
      // A case of one token or none shows least: its angle is zero, and its softmax has one key.
      const std::string& name = factors_[f].levels[static_cast<std::size_t>(level)];
      if (tokens && (name == "0" || name == "1")) continue;
      if (gain > most) most = gain, best = level;
    }
    levels[f] = best;
  }
  return levels;
}

std::vector<int> CoveringSearch::draw(std::vector<int> levels, const Dice& dice) const {
  for (std::size_t f = 0; f < factors_.size(); ++f) {
    if (levels[f] < 0 && !factors_[f].compares && dice.one_in(2))
      levels[f] = static_cast<int>(dice.below(std::ssize(factors_[f].levels)));
  }
  return levels;
}

void CoveringSearch::make_possible(Case& c, const std::vector<bool>& kept, bool looks, const auto& settled,
                                   const auto& has_all) const {
  const Case before = c;
  const auto fits = [&](std::size_t f, Index value) {
    c = before;
    factors_[f].put_value(c, value);
    settled();
    return factors_[f].value(c) == value && has_all() && std::isfinite(work_of(kernel_, c));
  };
  if (fix_ && !kept[fix_->factor] && fits(fix_->factor, fix_->value)) return;
  for (std::size_t f = 0; looks && f < factors_.size(); ++f) {
    if (kept[f] || !factors_[f].put_value) continue;
    for (const Index value : factors_[f].values) {
      if (!fits(f, value)) continue;
      fix_ = Fix{f, value};
      return;
    }
  }
  c = before;
}

std::optional<Case> CoveringSearch::attempt(const std::vector<int>& wanted, const std::vector<int>& levels,
                                            const Factor* size, Index value, bool least, double most,
                                            const Dice& dice, Failure& why) const {
  Case c = start_;
  std::vector<bool> kept(factors_.size());
  for (std::size_t f = 0; f < factors_.size(); ++f) {
    kept[f] = kept[f] || wanted[f] >= 0 || &factors_[f] == size;
    const std::vector<std::string>& fixes = factors_[f].fixes;
    for (std::size_t g = 0; wanted[f] >= 0 && !fixes.empty() && g < factors_.size(); ++g)
      kept[g] = kept[g] || std::find(fixes.begin(), fixes.end(), factors_[g].name) != fixes.end();
    // Two factors may set the number of tokens: the requested one comes last.
    if (wanted[f] >= 0 || &factors_[f] == size) continue;
    if (size != nullptr && levels[f] >= 0 && !values_[f].empty()) {
      factors_[f].put_value(c, dice.pick(values_[f]));
    } else if (levels[f] >= 0) {
      factors_[f].put(c, levels[f], dice);
    }
  }
  const auto settled = [&] {
    for (std::size_t f = 0; f < factors_.size(); ++f) {
      if (wanted[f] >= 0 && factors_[f].enable) c.law.clear(), factors_[f].enable(c);
    }
    for (std::size_t f = 0; f < factors_.size(); ++f) {
      if (wanted[f] >= 0 && least && factors_[f].put_least) {
        factors_[f].put_least(c, wanted[f]);
      } else if (wanted[f] >= 0) {
        factors_[f].put(c, wanted[f], dice);
      }
      if (&factors_[f] == size) size->put_value(c, value);
    }
    settle(c, kernel_, dice);
  };
  const auto has_all = [&] {
    if (size != nullptr && size->value(c) != value) return false;
    for (std::size_t f = 0; f < factors_.size(); ++f) {
      if (factors_[f].compares && wanted[f] <= 0 && factors_[f].level(c) > 0) return false;
      if (wanted[f] >= 0 && factors_[f].level(c) != wanted[f]) return false;
    }
    return true;
  };
  settled();
  if (!std::isfinite(work_of(kernel_, c))) make_possible(c, kept, levels == wanted, settled, has_all);
  if (!has_all() && !c.law.empty()) {  // the needs of a law leave few choices
    c.law.clear();
    settled();
  }
  why = {};
  if (!has_all()) return {};
  const bool affordable = afford(c, kernel_, factors_, kept, most, dice);
  if (!has_all() || !within_limits(kernel_, c) || never_judged(*kernel_.system, c) != nullptr) return {};
  if (affordable) return c;
  why.work = work_of(kernel_, c);
  return {};
}

double CoveringSearch::limit(const std::vector<int>& wanted, const Factor* size, Index value,
                             const Dice& dice) const {
  Failure why;
  fix_.reset();
  (void)attempt(wanted, wanted, size, value, kAlone.least, options_.usual, dice, why);
  return std::max(options_.usual, std::isfinite(why.work) ? kAboveLeast * why.work : 0.0);
}

}  // namespace samestate
