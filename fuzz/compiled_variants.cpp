#include "fuzz/compiled_variants.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

#include "fuzz/ordinary_calls.h"
#include "harness/cases/keys.h"
#include "harness/cases/resolved.h"
#include "harness/cases/system.h"
#include "harness/run/call_variant.h"

namespace samestate {
namespace {

using Values = std::vector<std::string>;

/// Whether each call of the case has a kernel, inside the limits of which it lies; a row looks at its own calls alone.
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

/// The variants that are kept, in the order in which they are chosen, by the number of cases of each. A value weighs as many cases
/// as have it: of a plan in which most sizes occur once the variants that share nothing with the others have a case each, and eight
/// of them judge nothing. What is new counts squared, so that each value of a few keys still comes before more cases of those seen.
std::vector<Values> chosen(const std::map<Values, std::vector<std::size_t>>& variants, std::int64_t most) {
  using Value = std::pair<std::size_t, std::string>;
  std::map<Value, std::int64_t> weights;
  for (const auto& [values, cases] : variants) {
    for (std::size_t i = 0; i < values.size(); ++i) weights[{i, values[i]}] += std::ssize(cases);
  }
  std::vector<Values> kept;
  std::set<const Values*> taken;
  std::set<Value> seen;
  while (std::ssize(kept) < most && kept.size() < variants.size()) {
    const Values* best = nullptr;
    std::pair<double, std::int64_t> best_gain{-1.0, -1};
    for (const auto& [values, cases] : variants) {
      if (taken.contains(&values)) continue;
      double fresh = 0.0;
      for (std::size_t i = 0; i < values.size(); ++i) {
        const Value value{i, values[i]};
        fresh += seen.contains(value) ? 0.0 : static_cast<double>(weights.at(value));
      }
      const auto count = std::ssize(cases);
      if (const std::pair gain{fresh * fresh * static_cast<double>(count), count}; gain > best_gain)
        best = &values, best_gain = gain;
    }
    for (std::size_t i = 0; i < best->size(); ++i) seen.emplace(i, (*best)[i]);
    taken.insert(best);
    kept.push_back(*best);
  }
  return kept;
}

/// Cases of a variant that stand together.
constexpr std::size_t kCasesOfRound = 40;

/// Gives the case the value that the other one has.
void take_value(Case& c, const Case& of, std::string_view key) {
  const bool size =
      std::ranges::any_of(system_named(c.system).sizes, [&](const CaseSize& s) { return s.name == key; });
  if (size) {
    size_in(c, key) = size_in(of, key);
  } else if (const Key* row = key_named(key); row != nullptr && row->parse != nullptr) {
    if (const std::string value = row->value(of); !value.empty()) row->parse(c, value);
  }
}

/// A case that is too dear once it has the sizes of a model gets one sequence, then fewer tokens.
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

/// One kernel's cases on their way to the variants that are kept.
class Variants {
 public:
  Variants(const KernelRow& row, const std::map<Values, std::vector<std::size_t>>& found,
           const std::vector<Case>& cases, std::int64_t most)
      : row_(row) {
    for (const Values& values : chosen(found, most)) {
      places_.emplace(values, kept_.size());
      kept_.push_back({values, cases[found.at(values).front()]});
    }
  }

  [[nodiscard]] std::size_t size() const { return kept_.size(); }

  /// The number of the variant that the case has; nothing where it is not kept.
  [[nodiscard]] std::optional<std::size_t> of(const Values& values) const {
    const auto found = places_.find(values);
    return found != places_.end() ? std::optional(found->second) : std::nullopt;
  }

  /// Makes it a case of a kept variant. Nothing where none fits.
  [[nodiscard]] std::optional<std::size_t> bring(Case& c, const Values& values, const KernelTable& table) {
    std::vector<std::size_t> order(kept_.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    const auto apart = [&](std::size_t i) {
      std::int64_t count = 0;
      for (std::size_t k = 0; k < values.size(); ++k) count += kept_[i].values[k] != values[k];
      return std::pair(count, kept_[i].brought);
    };
    std::ranges::sort(order, {}, apart);
    for (const std::size_t i : order) {
      Case moved = c;
      for (const std::string_view key : row_.compiled_for) {
        if (key != "form" && !key.ends_with(kBySixteen)) take_value(moved, kept_[i].first, key);
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
    Values values;
    Case first;
    std::int64_t brought = 0;
  };
  const KernelRow& row_;
  std::vector<Kept> kept_;
  std::map<Values, std::size_t> places_;
};

}  // namespace

std::vector<LeftOut> keep_callable(std::vector<Case>& cases, const KernelTable& table, std::int64_t most) {
  std::map<const KernelRow*, LeftOut> left;
  for (const KernelRow& row : table.all()) {
    if (row.only_inside) left[&row].kernel = row.name;
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
    const auto& now =
        variants.try_emplace(row, *row, by_values, cases, most > 0 ? most : std::ssize(by_values))
            .first->second;
    left[row].variants = std::ssize(by_values);
    left[row].kept = static_cast<std::int64_t>(now.size());
  }
  // The variants of a kernel stand where its first case stood, a part of each before more of any: a run that ends before its cases
  // do has compiled them all.
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
  for (const Place& place : order) out.push_back(std::move(cases[place.number]));
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
  }
  if (left.outside > 0)
    text += fmt::format("{} {} cases of the plan lie outside its limits or need a kernel of the other form",
                        left.variants > 0 ? ";" : "", left.outside);
  return text;
}

}  // namespace samestate
