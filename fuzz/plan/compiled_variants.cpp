#include "fuzz/plan/compiled_variants.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <span>
#include <utility>

#include "fuzz/plan/ordinary_calls.h"
#include "harness/cases/keys.h"
#include "harness/cases/resolved.h"
#include "harness/cases/system.h"
#include "harness/run/call_variant.h"
#include "harness/systems/model_sizes.h"

namespace samestate {
namespace {

using Values = std::vector<std::string>;

/// Returns true if every call of the case has a kernel and lies within its limits; a row looks only at its
/// own calls.
bool callable(const KernelChoice& choice, const Case& c) {
  const Resolved r(c);
  const bool two = !r.form->of_any_form();
  for (const Segment& segment : r.path(c.T)) {
    const KernelRow* called = !two ? choice.named : segment.chunk > 0 ? choice.chunked : choice.unchunked;
    if (segment.tokens > 0 && called == nullptr) return false;
  }
  return std::ranges::all_of(
      std::array{choice.chunked, choice.unchunked, choice.named},
      [&](const auto* called) { return called == nullptr || within_limits(*called, c); });
}

/// Returns true if the key is one of the sizes of the case's system.
bool is_size(const Case& c, std::string_view key) {
  return std::ranges::any_of(system_named(c.system).sizes, [&](const CaseSize& s) { return s.name == key; });
}

/// Gives the case the value of the key that the other case has.
void take_value(Case& c, const Case& of, std::string_view key) {
  if (is_size(c, key)) {
    size_in(c, key) = size_in(of, key);
  } else if (const Key* row = key_named(key); row != nullptr && row->parse != nullptr) {
    if (const std::string value = row->value(of); !value.empty()) row->parse(c, value);
  }
}

/// A variant and a case of it.
struct Chosen {
  Values values;
  Case example;
};

/// Chooses variants of a kernel among those that occur in the cases and those that combine the sizes of one
/// case with the settings of another. It adds one variant at a time for what is new in it: values, pairs of
/// values, and all its sizes together with each of its settings. An item weighs as much as the number of
/// cases that have it, and all sizes of a public model kModel times as much: these therefore come first, with
/// each frequent kind of tokens, state and form, and sizes that occur once come last.
class Choice {
 public:
  Choice(const KernelRow& row, const std::map<Values, std::vector<std::size_t>>& variants,
         const std::vector<Case>& cases)
      : row_(row) {
    for (const ModelSizes& of : model_sizes(*row.system)) models_.push_back(of.sizes);
    std::map<Values, Half> sizes, settings;
    for (const auto& [values, places] : variants) {
      const auto& [own_sizes, own_settings] = halves(values, cases[places.front()]);
      for (const auto& [half, key] : {std::pair(&sizes, own_sizes), std::pair(&settings, own_settings)}) {
        Half& one = half->try_emplace(key, Half{cases[places.front()]}).first->second;
        one.cases += std::ssize(places);
      }
      const std::int64_t times = is_model(cases[places.front()]) ? kModel : 1;
      const std::vector<std::size_t> its = items(values, own_sizes);
      // A value counts twice, so that a setting is covered before more pairs without it.
      for (std::size_t item = 0; item < its.size(); ++item)
        weights_[its[item]] += (item <= values.size() ? 2 : 1) * times * std::ssize(places);
    }
    for (const auto& [size_values, size] : heaviest(sizes)) {
      for (const auto& [setting_values, setting] : heaviest(settings)) {
        Case example = setting.example;
        for (const std::string_view key : row.compiled_for) {
          if (is_size(example, key)) take_value(example, size.example, key);
        }
        if (example.Hv % std::max<Index>(example.Hk, 1) != 0 || !possible(example) ||
            !within_limits(row, example))
          continue;
        Values values = variant_of(row, example);
        std::vector<std::size_t> of = items(values, size_values);
        const auto there = variants.find(values);
        candidates_.push_back({{std::move(values), std::move(example)},
                               there != variants.end() ? std::ssize(there->second) : 0,
                               std::move(of)});
      }
    }
  }

  [[nodiscard]] std::vector<Chosen> first(std::int64_t most) {
    std::vector<Chosen> out;
    while (std::ssize(out) < most && !candidates_.empty()) {
      const auto gain = [&](const Candidate& candidate) {
        std::int64_t fresh = 0;
        for (const std::size_t item : candidate.items) fresh += weights_[item];
        return std::pair(fresh, candidate.cases);
      };
      const auto best = std::ranges::max_element(candidates_, {}, gain);
      if (gain(*best) == std::pair<std::int64_t, std::int64_t>(0, 0)) break;
      for (const std::size_t item : best->items) weights_[item] = 0;
      out.push_back(std::move(best->chosen));
      candidates_.erase(best);
    }
    return out;
  }

 private:
  static constexpr std::int64_t kModel = 8;
  static constexpr std::size_t kMostHalves = 160;  ///< sizes and settings, each combined with each

  struct Half {
    Case example;
    std::int64_t cases = 0;
  };
  struct Candidate {
    Chosen chosen;
    std::int64_t cases;
    std::vector<std::size_t> items;  ///< the indices of their weights
  };

  [[nodiscard]] std::pair<Values, Values> halves(const Values& values, const Case& c) const {
    std::pair<Values, Values> out;
    for (std::size_t i = 0; i < values.size(); ++i)
      (is_size(c, row_.compiled_for[i]) ? out.first : out.second).push_back(values[i]);
    return out;
  }

  [[nodiscard]] bool is_model(Case c) const {
    return std::ranges::any_of(models_, [&](const auto& sizes) {
      return std::ranges::all_of(sizes, [&](const auto& size) {
        return std::ranges::find(row_.compiled_for, size.first) == row_.compiled_for.end() ||
               size_in(c, size.first) == size.second;
      });
    });
  }

  /// Returns the indices of a variant's values, then of its pairs. A value is identified by the index of its
  /// key, all sizes together by the index after the last.
  std::vector<std::size_t> items(const Values& values, const Values& sizes) {
    std::vector<std::size_t> ids;
    for (std::size_t i = 0; i < values.size(); ++i)
      ids.push_back(ids_.try_emplace({i, Values{values[i]}}, ids_.size()).first->second);
    ids.push_back(ids_.try_emplace({values.size(), sizes}, ids_.size()).first->second);
    std::vector<std::size_t> out;
    const auto add = [&](std::size_t one, std::size_t other) {
      out.push_back(places_.try_emplace({one, other}, places_.size()).first->second);
    };
    for (const std::size_t id : ids) add(id, id);  // a value alone is paired with itself
    for (std::size_t i = 0; i < ids.size(); ++i) {
      for (std::size_t j = i + 1; j < ids.size(); ++j) add(ids[i], ids[j]);
    }
    weights_.resize(places_.size());
    return out;
  }

  [[nodiscard]] std::vector<std::pair<Values, Half>> heaviest(const std::map<Values, Half>& halves) const {
    std::vector<std::pair<Values, Half>> out(halves.begin(), halves.end());
    std::ranges::stable_sort(out, std::ranges::greater(), [&](const auto& half) {
      return half.second.cases * (is_model(half.second.example) ? kModel : 1);
    });
    out.resize(std::min(out.size(), kMostHalves));
    return out;
  }

  const KernelRow& row_;
  std::vector<std::vector<std::pair<std::string_view, std::int64_t>>> models_;
  std::map<std::pair<std::size_t, Values>, std::size_t> ids_;
  std::map<std::pair<std::size_t, std::size_t>, std::size_t> places_;
  std::vector<std::int64_t> weights_;
  std::vector<Candidate> candidates_;
};

/// Number of cases of one variant that are placed together.
constexpr std::size_t kCasesOfRound = 40;

/// Reduces a case that became too expensive with a model's sizes to one sequence, and then to fewer tokens.
bool afford(Case& c, const KernelRow& kernel) {
  while (seconds_of_call(kernel, c) > kSecondsOfDearCall) {
    if (!c.lengths.empty() || (c.B == 1 && c.T <= 2)) return false;
    if (c.B > 1)
      c.B = 1;
    else
      c.T = c.T % 32 == 0 ? c.T / 2 : (c.T + 1) / 2;
    c.prefill = std::min(c.prefill, c.T - 1);
  }
  return true;
}

/// Returns the values of the plan's variants that no kept variant has, starting with those of the most cases.
std::vector<std::string> lost_values(
    const KernelRow& row, const std::map<Values, std::vector<std::size_t>>& found,
    const std::function<bool(std::size_t key, const std::string& value)>& kept) {
  std::map<std::string, std::int64_t> cases;
  for (const auto& [values, places] : found) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (!kept(i, values[i]))
        cases[fmt::format("{}={}", row.compiled_for[i], values[i])] += std::ssize(places);
    }
  }
  std::vector<std::pair<std::int64_t, std::string>> order;
  for (const auto& [value, count] : cases) order.emplace_back(-count, value);
  std::ranges::sort(order);
  std::vector<std::string> out;
  for (auto& [count, value] : order) out.push_back(std::move(value));
  return out;
}

/// Moves one kernel's cases to the variants that are kept.
class Variants {
 public:
  Variants(const KernelRow& row, const std::map<Values, std::vector<std::size_t>>& found,
           const std::vector<Case>& cases, std::int64_t most)
      : row_(row) {
    if (most <= 0) {
      std::vector<std::pair<Values, std::vector<std::size_t>>> all(found.begin(), found.end());
      std::ranges::stable_sort(all, std::ranges::greater(),
                               [](const auto& one) { return one.second.size(); });
      for (auto& [values, places] : all) keep({std::move(values), cases[places.front()]});
    } else {
      for (Chosen& one : Choice(row, found, cases).first(most)) keep(std::move(one));
    }
  }

  [[nodiscard]] std::size_t size() const { return kept_.size(); }

  [[nodiscard]] bool has(std::size_t key, const std::string& value) const {
    return std::ranges::any_of(kept_, [&](const Kept& one) { return one.chosen.values[key] == value; });
  }

  /// Returns the number of the case's variant; nullopt if that variant is not kept.
  [[nodiscard]] std::optional<std::size_t> of(const Values& values) const {
    const auto found = places_.find(values);
    return found != places_.end() ? std::optional(found->second) : std::nullopt;
  }

  /// Turns it into a case of a kept variant. Returns nullopt if none fits.
  [[nodiscard]] std::optional<std::size_t> bring(Case& c, const Values& values, const KernelTable& table) {
    std::vector<std::size_t> order(kept_.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    const auto apart = [&](std::size_t i) {
      std::int64_t count = 0;
      for (std::size_t k = 0; k < values.size(); ++k) count += kept_[i].chosen.values[k] != values[k];
      return std::pair(count, kept_[i].brought);
    };
    std::ranges::sort(order, {}, apart);
    for (const std::size_t i : order) {
      Case moved = c;
      for (const std::string_view key : row_.compiled_for) {
        if (key != "form" && !key.ends_with(kBySixteen)) take_value(moved, kept_[i].chosen.example, key);
      }
      if (moved.Hv % std::max<Index>(moved.Hk, 1) != 0) continue;
      if (!possible(moved) || !afford(moved, row_) || !possible(moved)) continue;
      const std::optional<std::size_t> now = of(variant_of(row_, moved));
      if (!now || table.choose(Resolved(moved)).named != &row_ ||
          !callable(table.choose(Resolved(moved)), moved))
        continue;
      ++kept_[i].brought;
      c = std::move(moved);
      return now;
    }
    return std::nullopt;
  }

 private:
  struct Kept {
    Chosen chosen;
    std::int64_t brought = 0;
  };
  void keep(Chosen one) {
    if (places_.emplace(one.values, kept_.size()).second) kept_.push_back({std::move(one)});
  }
  const KernelRow& row_;
  std::vector<Kept> kept_;
  std::map<Values, std::size_t> places_;
};

}  // namespace

std::vector<LeftOut> keep_callable(std::vector<Case>& cases, const KernelTable& table, std::int64_t most,
                                   std::vector<std::size_t>* places) {
  std::map<const KernelRow*, LeftOut> left;
  for (const KernelRow& row : table.all()) {
    if (row.only_inside) left[&row].kernel = row.name;
  }
  if (places != nullptr) {
    places->resize(cases.size());
    std::iota(places->begin(), places->end(), std::size_t{0});
  }
  if (left.empty()) return {};

  std::map<const KernelRow*, std::map<Values, std::vector<std::size_t>>> found;
  std::vector<const KernelRow*> subjects(cases.size(), nullptr);
  std::vector<Values> of(cases.size());
  std::vector<bool> stays(cases.size(), true);
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const KernelChoice choice = table.choose(Resolved(cases[i]));
    const KernelRow* row = choice.named;
    if (!row->only_inside) continue;
    subjects[i] = row;
    if (!callable(choice, cases[i])) {
      stays[i] = false;
      ++left[row].outside;
    } else if (!row->compiled_for.empty()) {
      of[i] = variant_of(*row, cases[i]);
      found[row][of[i]].push_back(i);
    }
  }

  std::map<const KernelRow*, Variants> variants;
  for (const auto& [row, by_values] : found) {
    const auto& now = variants.try_emplace(row, *row, by_values, cases, most).first->second;
    left[row].variants = std::ssize(by_values);
    left[row].kept = static_cast<std::int64_t>(now.size());
    left[row].lost = lost_values(
        *row, by_values, [&](std::size_t key, const std::string& value) { return now.has(key, value); });
  }
  // A kernel's variants take the place of its first case, some cases of each before more of any: a run that
  // ends early has then compiled them all.
  struct Place {
    std::size_t first, round, variant, number;
    auto operator<=>(const Place&) const = default;
  };
  std::map<const KernelRow*, std::size_t> first;
  std::map<std::pair<const KernelRow*, std::size_t>, std::size_t> counts;
  std::vector<Place> order;
  std::set<std::string> seen;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    if (!stays[i]) continue;
    const KernelRow* row = subjects[i];
    if (row == nullptr || row->compiled_for.empty()) {
      order.push_back({i, 0, 0, i});
      continue;
    }
    Variants& its = variants.at(row);
    std::optional<std::size_t> variant = its.of(of[i]);
    const bool own = variant.has_value();
    const std::string planned = own ? "" : format_case(cases[i]);
    if (!own) variant = its.bring(cases[i], of[i], table);
    if (!variant) {
      ++left[row].left;
      continue;
    }
    const std::string line = format_case(cases[i]);
    if (!own) left[row].lines[planned] = line;
    if (!seen.insert(line).second) continue;
    left[row].brought += own ? 0 : 1;
    const std::size_t round = counts[{row, *variant}]++ / kCasesOfRound;
    order.push_back({first.try_emplace(row, i).first->second, round, *variant, i});
  }
  std::ranges::sort(order);
  std::vector<Case> out;
  out.reserve(order.size());
  if (places != nullptr) places->clear();
  for (const Place& place : order) {
    out.push_back(std::move(cases[place.number]));
    if (places != nullptr) places->push_back(place.number);
  }
  cases = std::move(out);

  std::vector<LeftOut> rows;
  for (const KernelRow& row : table.all()) {
    if (const auto at = left.find(&row);
        at != left.end() && (at->second.outside > 0 || at->second.variants > 0))
      rows.push_back(at->second);
  }
  return rows;
}

void leave_compiled(std::vector<Case>& cases, const KernelTable& table) {
  std::erase_if(cases, [&](const Case& c) { return !table.choose(Resolved(c)).named->compiled_for.empty(); });
}

std::string text_of(const LeftOut& left) {
  std::string text = left.kernel + ":";
  if (left.variants > 0) {
    text += fmt::format(" {} of {} variants are compiled", left.kept, left.variants);
    if (left.brought + left.left > 0)
      text += fmt::format(
          " (--compiles takes more), and {} cases of the others have their sizes and settings", left.brought);
    if (left.left > 0) text += fmt::format(", {} that cannot were left out", left.left);
    constexpr std::size_t kMostNamed = 8;
    if (!left.lost.empty()) {
      const std::span<const std::string> named(left.lost.data(), std::min(left.lost.size(), kMostNamed));
      text += fmt::format("; no variant has {}{}", fmt::join(named, ", "),
                          left.lost.size() > kMostNamed
                              ? fmt::format(" and {} more values", left.lost.size() - kMostNamed)
                              : "");
    }
  }
  if (left.outside > 0)
    text += fmt::format("{} {} cases of the plan lie outside its limits or need a kernel of the other form",
                        left.variants > 0 ? ";" : "", left.outside);
  return text;
}

}  // namespace samestate
