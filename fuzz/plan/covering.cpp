#include "fuzz/plan/covering.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <optional>
#include <set>

#include "fuzz/plan/covering_tries.h"
#include "fuzz/plan/draw.h"
#include "fuzz/plan/never_judged.h"
#include "fuzz/plan/uses.h"
#include "harness/cases/counter.h"

namespace samestate {
namespace {

class Cover {
 public:
  Cover(const KernelRow& kernel, const std::vector<Factor>& factors, const CoveringOptions& options)
      : kernel_(kernel),
        start_(start_of(kernel)),
        factors_(factors),
        options_(options),
        met_(factors, options.strength),
        pairs_(factors, 2),
        missing_(static_cast<std::size_t>(met_.size()), Missing::none),
        counter_(options.seed, fmt::format("cover/{}/{}", kernel.system->name, kernel.form)) {
    for (const Factor& factor : factors) {
      values_.emplace_back(factor.values.begin(), factor.values.end());
    }
    bare_ = unmet_ = values_;
  }

  void given(const Case& c) {
    if (never_judged(*kernel_.system, c) != nullptr) return;
    const std::vector<int> levels = levels_of(factors_, c);
    (void)met_.add(levels);
    forget_values(c);
  }

  /// Of two sequences where that costs little: what goes wrong with one value may do so across them alone.
  void values() {
    constexpr Index kLittle = 32;
    const Index one = start_.B;
    for (std::size_t f = 0; f < factors_.size(); ++f) {
      for (const Index value : factors_[f].values) {
        start_.B = std::max<Index>(one, value <= kLittle ? 2 : 1);
        if (values_[f].contains(value)) value_of(f, value);
      }
      values_[f] = unmet_[f];  // what no such case can have
    }
    start_.B = one;
  }

  void combinations() {
    for (std::int64_t at = 0; at < met_.size(); ++at) {
      if (stopped()) return;
      if (met_.has(at)) continue;
      Missing& missing = missing_[static_cast<std::size_t>(at)];
      if (missing == Missing::none) missing = combination(met_.levels(at));
    }
  }

  /// Sizes that hang together (groups of a width, pairs of a head's columns) are met by chance where no try fitted. Ends where
  /// many draws show nothing new.
  void chance() {
    constexpr int kDraws = 1500, kOfNothing = 200;
    const Dice chance = dice();
    for (int i = 0, nothing = 0; i < kDraws && nothing < kOfNothing && !stopped(); ++i, ++nothing) {
      Case c = draw_case(kernel_, factors_, chance, 2 * options_.common);
      if (never_judged(*kernel_.system, c) != nullptr || met_.fresh(levels_of(factors_, c)) == 0) continue;
      keep(std::move(c));
      nothing = 0;
    }
    for (std::int64_t at = 0; at < met_.size(); ++at) {
      if (met_.has(at)) missing_[static_cast<std::size_t>(at)] = Missing::none;
    }
  }

  /// Each of these pairs, as kAgain has it.
  void again(std::span<const std::int64_t> pairs, int round) {
    const auto& [how, tokens, drawn] = kAgain.at(static_cast<std::size_t>(round));
    const Dice chance = dice();
    if (tokens >= 0) start_.T = tokens;
    for (const std::int64_t at : pairs) {
      if (met_.has(at)) continue;
      const std::vector<int> wanted = met_.levels(at);
      const double most =
          std::max(std::min(limit(wanted, nullptr, 0, chance), options_.most), options_.common);
      Failure why;
      for (int i = 0; i < drawn; ++i) {
        if (std::optional<Case> c =
                attempt(wanted, draw(wanted, chance), nullptr, 0, how.least, most, chance, why))
          keep(std::move(*c));
      }
      // What a kernel does not take by itself, in one of its forms for one, it may take with other choices.
      for (const Try& other :
           {how, Try{Try::Free::none, false}, kTries[4], kTries[4], kTries[3], kTries[0]}) {
        if (met_.has(at)) break;
        if (std::optional<Case> c = attempt(wanted, choose(wanted, other.free, chance), nullptr, 0,
                                            other.least, most, chance, why))
          keep(std::move(*c));
      }
    }
  }

  /// Leaves out the cases that nothing needs: what came later has all that they have. The dearest first; what a case that
  /// stays has besides what needs it is made as small as that allows, or gives way to cases that cost less together.
  void thin(std::span<const Case> given) {
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
      cases_.insert(cases_.end(), std::make_move_iterator(parts.begin()),
                    std::make_move_iterator(parts.end()));
    }
    drop(uses);
  }

  [[nodiscard]] Covering take() { return {std::move(cases_), met_.met(), std::move(missing_)}; }

 private:
  [[nodiscard]] bool stopped() const { return options_.stop && options_.stop(); }

  [[nodiscard]] std::vector<std::size_t> dearest_first() const {
    std::vector<double> work;
    for (const Case& c : cases_) work.push_back(work_of(kernel_, c));
    std::vector<std::size_t> order(cases_.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return work[a] > work[b]; });
    return order;
  }

  void drop(Uses& uses) {
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

  /// The same needs with less work, as far as smaller sizes of the other factors do it.
  void make_lighter(Case& c, const Needs& needs, double work) const {
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

  /// Cases for each of the needs by itself, which cost less than this one; none where they do not.
  [[nodiscard]] std::vector<Case> apart(const Case& c, const Needs& needs) const {
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

  [[nodiscard]] Exposure shown(std::size_t f, const Case& c) const {
    return exposure(factors_[f], c, start_);
  }

  void forget_values(const Case& c) {
    for (std::size_t f = 0; f < factors_.size(); ++f) {
      if (!factors_[f].value) continue;
      const Index value = factors_[f].value(c);
      const Exposure what = shown(f, c);
      unmet_[f].erase(value);
      if (what >= Exposure::most) bare_[f].erase(value);
      if (what == Exposure::all) values_[f].erase(value);
    }
  }

  /// What makes a case show little stays as the start has it.
  void leave_plain(std::vector<int>& levels) const {
    for (std::size_t f = 0; f < factors_.size(); ++f) {
      if (factors_[f].name == "regime" || factors_[f].name == "law" || factors_[f].name == "form")
        levels[f] = -1;
    }
  }

  void keep(Case c) {
    (void)met_.add(levels_of(factors_, c));
    forget_values(c);
    cases_.push_back(std::move(c));
  }

  /// The level of each factor that is free: the one with most that is new, ties by chance.
  [[nodiscard]] std::vector<int> choose(std::vector<int> levels, Try::Free free, const Dice& dice) const {
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
        // Of one token, or of none, a case shows least: an angle of zero, a softmax of one key.
        const std::string& name = factors_[f].levels[static_cast<std::size_t>(level)];
        if (tokens && (name == "0" || name == "1")) continue;
        if (gain > most) most = gain, best = level;
      }
      levels[f] = best;
    }
    return levels;
  }

  /// Half of the factors that are free at a level by chance, but for a law, which shows nothing of the others.
  [[nodiscard]] std::vector<int> draw(std::vector<int> levels, const Dice& dice) const {
    for (std::size_t f = 0; f < factors_.size(); ++f) {
      if (levels[f] < 0 && !factors_[f].compares && dice.one_in(2))
        levels[f] = static_cast<int>(dice.below(std::ssize(factors_[f].levels)));
    }
    return levels;
  }

  /// A case of these levels, -1 for those that are free, and of one value of a size; with it come values of other sizes
  /// that no case has yet, as far as the work allows.
  [[nodiscard]] std::optional<Case> attempt(const std::vector<int>& wanted, const std::vector<int>& levels,
                                            const Factor* size, Index value, bool least, double most,
                                            const Dice& dice, Failure& why) const {
    Case c = start_;
    std::vector<bool> kept(factors_.size());
    for (std::size_t f = 0; f < factors_.size(); ++f) {
      kept[f] = kept[f] || wanted[f] >= 0 || &factors_[f] == size;
      const std::vector<std::string>& fixes = factors_[f].fixes;
      for (std::size_t g = 0; wanted[f] >= 0 && !fixes.empty() && g < factors_.size(); ++g)
        kept[g] = kept[g] || std::find(fixes.begin(), fixes.end(), factors_[g].name) != fixes.end();
      // Two factors may say how many tokens there are: the one that is wanted comes last.
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
    if (!has_all() && !c.law.empty()) {  // what a law needs leaves few choices
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

  /// Sizes that hang together (pairs of columns within a head, experts of a token within all): the least of another size,
  /// a free one, that makes them possible. It is looked for where little else is asked for (limit); the other tries for the
  /// same combination take what was found there.
  void make_possible(Case& c, const std::vector<bool>& kept, bool looks, const auto& settled,
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

  [[nodiscard]] Dice dice() const {
    return Dice{[this](std::int64_t n) { return n <= 1 ? 0 : counter_.below({draws_++, 0, 0, 0}, n); }};
  }

  /// The work of a case with these levels, or this value, and as little else as there can be: where it is more than most
  /// cases', a case may take a little more than that.
  [[nodiscard]] double limit(const std::vector<int>& wanted, const Factor* size, Index value,
                             const Dice& dice) const {
    Failure why;
    fix_.reset();
    (void)attempt(wanted, wanted, size, value, kAlone.least, options_.usual, dice, why);
    return std::max(options_.usual, std::isfinite(why.work) ? kAboveLeast * why.work : 0.0);
  }

  /// Of the pairs of a combination, the first that is missing.
  [[nodiscard]] Missing missing_pair(const std::vector<int>& wanted) const {
    if (options_.pairs == nullptr) return Missing::none;
    for (std::size_t f = 0; f < wanted.size(); ++f) {
      for (std::size_t g = f + 1; wanted[f] >= 0 && g < wanted.size(); ++g) {
        if (wanted[g] < 0) continue;
        const std::int64_t at = pairs_.at(f, wanted[f], g, wanted[g]);
        if (const Missing pair = (*options_.pairs)[static_cast<std::size_t>(at)]; pair != Missing::none)
          return pair;
      }
    }
    return Missing::none;
  }

  [[nodiscard]] Missing combination(const std::vector<int>& wanted) {
    if (const Missing pair = missing_pair(wanted); pair != Missing::none) return pair;
    const Dice chance = dice();
    const double usual = limit(wanted, nullptr, 0, chance);
    if (usual > kAboveLeast * options_.most) return Missing::dear;
    // What settling and the work leave of a choice, its case alone shows: the best of the cheap tries, else the first.
    std::optional<Case> best;
    double most = 0.0;
    bool dear = false;
    const bool triples = options_.strength == 3;
    for (const Try& how : triples ? std::span<const Try>(kTriesOfTriples) : std::span<const Try>(kTries)) {
      if (best && (triples || how.times > 1)) break;
      Failure why;
      std::optional<Case> c =
          attempt(wanted, choose(wanted, how.free, chance), nullptr, 0, how.least,
                  std::min(std::max(options_.common, std::min(usual, options_.most)), how.times * usual),
                  chance, why);
      dear = dear || std::isfinite(why.work);
      if (!c) continue;
      const double gain =
          static_cast<double>(met_.fresh(levels_of(factors_, *c))) / (work_of(kernel_, *c) + kCaseItself);
      if (gain > most) most = gain, best = std::move(c);
    }
    if (!best) return dear ? Missing::dear : Missing::impossible;
    keep(std::move(*best));
    return Missing::none;
  }

  /// In a case that shows all of it; where that costs too much, or the kernel takes none, in one that shows less, unless one has
  /// it.
  void value_of(std::size_t f, Index value) {
    const Dice chance = dice();
    const std::vector<int> none(factors_.size(), -1);
    const double of_one_token = limit(none, &factors_[f], value, chance);
    for (const Exposure least : {Exposure::all, Exposure::most, Exposure::little}) {
      const double usual = of_one_token * (least == Exposure::all ? static_cast<double>(kFewTokens) : 1.0);
      if (least == Exposure::most && !bare_[f].contains(value)) continue;
      if (least == Exposure::little && !unmet_[f].contains(value)) return;
      for (const Try& how : kTries) {
        std::vector<int> levels = choose(none, how.free, chance);
        levels[f] = -1;
        if (least > Exposure::little) leave_plain(levels);
        Failure why;
        std::optional<Case> c =
            attempt(none, levels, &factors_[f], value, how.least,
                    std::min(std::max(options_.common, std::min(usual, options_.most)), how.times * usual),
                    chance, why);
        if (!c || shown(f, *c) < least) continue;
        keep(std::move(*c));
        return;
      }
    }
  }

  const KernelRow& kernel_;
  Case start_;  ///< where each attempt begins
  const std::vector<Factor>& factors_;
  CoveringOptions options_;
  Combinations met_;
  Combinations pairs_;  ///< only their numbers
  std::vector<Missing> missing_;
  Counter counter_;
  mutable std::int64_t draws_ = 0;
  mutable std::optional<Fix> fix_;       ///< of the combination or value that is tried
  std::vector<std::set<Index>> values_;  ///< of each size, those of which no case shows all yet
  std::vector<std::set<Index>> bare_;    ///< those of which none shows most
  std::vector<std::set<Index>> unmet_;   ///< those that no case has
  std::vector<Case> cases_;
};

}  // namespace

Covering cover(const KernelRow& kernel, const std::vector<Factor>& factors, std::span<const Case> given,
               const CoveringOptions& options) {
  Cover cover(kernel, factors, options);
  for (const Case& c : given) cover.given(c);
  cover.values();
  cover.combinations();
  cover.chance();
  cover.thin(given);
  return cover.take();
}

std::vector<Case> cover_again(const KernelRow& kernel, const std::vector<Factor>& factors,
                              std::span<const std::int64_t> pairs, int round,
                              const CoveringOptions& options) {
  CoveringOptions of = options;
  of.seed = options.seed + 1000 * static_cast<std::uint64_t>(round + 1);  // other draws each time
  Cover cover(kernel, factors, of);
  cover.again(pairs, round);
  return cover.take().cases;
}

}  // namespace samestate
