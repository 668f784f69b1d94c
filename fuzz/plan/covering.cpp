#include "fuzz/plan/covering.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "fuzz/plan/covering_search.h"
#include "fuzz/plan/draw.h"
#include "fuzz/plan/never_judged.h"

namespace samestate {

CoveringSearch::CoveringSearch(const KernelRow& kernel, const std::vector<Factor>& factors,
                               const CoveringOptions& options)
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

void CoveringSearch::given(const Case& c) {
  if (never_judged(*kernel_.system, c) != nullptr) return;
  const std::vector<int> levels = levels_of(factors_, c);
  (void)met_.add(levels);
  forget_values(c);
}

void CoveringSearch::values() {
  constexpr Index kLittle = 32;
  const Index one = start_.B;
  for (std::size_t f = 0; f < factors_.size(); ++f) {
    for (const Index value : factors_[f].values) {
      start_.B = std::max<Index>(one, value <= kLittle ? 2 : 1);
      if (values_[f].contains(value)) value_of(f, value);
    }
    values_[f] = unmet_[f];  // no such case can have these
  }
  start_.B = one;
}

void CoveringSearch::combinations() {
  for (std::int64_t at = 0; at < met_.size(); ++at) {
    if (stopped()) return;
    if (met_.has(at)) continue;
    Missing& missing = missing_[static_cast<std::size_t>(at)];
    if (missing == Missing::none) missing = combination(met_.levels(at));
  }
}

void CoveringSearch::chance() {
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

void CoveringSearch::again(std::span<const std::int64_t> pairs, int round) {
  const auto& [how, tokens, drawn] = kAgain.at(static_cast<std::size_t>(round));
  const Dice chance = dice();
  if (tokens >= 0) start_.T = tokens;
  for (const std::int64_t at : pairs) {
    if (met_.has(at)) continue;
    const std::vector<int> wanted = met_.levels(at);
    const double most = std::max(std::min(limit(wanted, nullptr, 0, chance), options_.most), options_.common);
    Failure why;
    for (int i = 0; i < drawn; ++i) {
      if (std::optional<Case> c =
              attempt(wanted, draw(wanted, chance), nullptr, 0, how.least, most, chance, why))
        keep(std::move(*c));
    }
    // A kernel may refuse a level by itself, for example in one of its forms, and take it with other choices.
    for (const Try& other : {how, Try{Try::Free::none, false}, kTries[4], kTries[4], kTries[3], kTries[0]}) {
      if (met_.has(at)) break;
      if (std::optional<Case> c =
              attempt(wanted, choose(wanted, other.free, chance), nullptr, 0, other.least, most, chance, why))
        keep(std::move(*c));
    }
  }
}

void CoveringSearch::keep(Case c) {
  (void)met_.add(levels_of(factors_, c));
  forget_values(c);
  cases_.push_back(std::move(c));
}

void CoveringSearch::forget_values(const Case& c) {
  for (std::size_t f = 0; f < factors_.size(); ++f) {
    if (!factors_[f].value) continue;
    const Index value = factors_[f].value(c);
    const Exposure what = shown(f, c);
    unmet_[f].erase(value);
    if (what >= Exposure::most) bare_[f].erase(value);
    if (what == Exposure::all) values_[f].erase(value);
  }
}

Missing CoveringSearch::missing_pair(const std::vector<int>& wanted) const {
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

Missing CoveringSearch::combination(const std::vector<int>& wanted) {
  if (const Missing pair = missing_pair(wanted); pair != Missing::none) return pair;
  const Dice chance = dice();
  const double usual = limit(wanted, nullptr, 0, chance);
  if (usual > kAboveLeast * options_.most) return Missing::dear;
  // Settling and the work limit may drop part of a choice, so the case itself is checked: take the best of
  // the cheap tries, or else the first.
  std::optional<Case> best;
  double most = 0.0;
  bool dear = false;
  const bool triples = options_.strength == 3;
  for (const Try& how : triples ? std::span<const Try>(kTriesOfTriples) : std::span<const Try>(kTries)) {
    if (best && (triples || how.times > 1)) break;
    Failure why;
    std::optional<Case> c = attempt(
        wanted, choose(wanted, how.free, chance), nullptr, 0, how.least,
        std::min(std::max(options_.common, std::min(usual, options_.most)), how.times * usual), chance, why);
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

void CoveringSearch::value_of(std::size_t f, Index value) {
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

Covering cover(const KernelRow& kernel, const std::vector<Factor>& factors, std::span<const Case> given,
               const CoveringOptions& options) {
  CoveringSearch search(kernel, factors, options);
  for (const Case& c : given) search.given(c);
  search.values();
  search.combinations();
  search.chance();
  search.thin(given);
  return search.take();
}

std::vector<Case> cover_again(const KernelRow& kernel, const std::vector<Factor>& factors,
                              std::span<const std::int64_t> pairs, int round,
                              const CoveringOptions& options) {
  CoveringOptions of = options;
  of.seed = options.seed + 1000 * static_cast<std::uint64_t>(round + 1);  // other draws in every round
  CoveringSearch search(kernel, factors, of);
  search.again(pairs, round);
  return search.take().cases;
}

}  // namespace samestate
