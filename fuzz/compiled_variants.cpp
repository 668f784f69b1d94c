#include "fuzz/compiled_variants.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <utility>

#include "harness/cases/resolved.h"
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

/// The variants that are kept, by the number of cases of each. A value weighs as many cases as have it: of a plan in which
/// most sizes occur once the variants that share nothing with the others have a case each, and eight of them judge
/// nothing. What is new counts squared, so that each value of a few keys still comes before more cases of those seen.
std::set<Values> chosen(const std::map<Values, std::int64_t>& variants, std::int64_t most) {
  using Value = std::pair<std::size_t, std::string>;
  std::map<Value, std::int64_t> weights;
  for (const auto& [values, cases] : variants) {
    for (std::size_t i = 0; i < values.size(); ++i) weights[{i, values[i]}] += cases;
  }
  std::set<Values> kept;
  std::set<Value> seen;
  while (std::ssize(kept) < most && std::ssize(kept) < std::ssize(variants)) {
    const Values* best = nullptr;
    std::pair<double, std::int64_t> best_gain{-1.0, -1};
    for (const auto& [values, cases] : variants) {
      if (kept.contains(values)) continue;
      double fresh = 0.0;
      for (std::size_t i = 0; i < values.size(); ++i) {
        const Value value{i, values[i]};
        fresh += seen.contains(value) ? 0.0 : static_cast<double>(weights.at(value));
      }
      if (const std::pair gain{fresh * fresh * static_cast<double>(cases), cases}; gain > best_gain)
        best = &values, best_gain = gain;
    }
    for (std::size_t i = 0; i < best->size(); ++i) seen.emplace(i, (*best)[i]);
    kept.insert(*best);
  }
  return kept;
}

}  // namespace

std::vector<LeftOut> keep_callable(std::vector<Case>& cases, const KernelTable& table, std::int64_t most) {
  std::map<const KernelRow*, LeftOut> left;
  std::vector<const KernelRow*> subjects(cases.size(), nullptr);
  for (const KernelRow& row : table.all()) {
    if (row.only_inside) left[&row].kernel = row.name;
  }
  if (left.empty()) return {};

  std::map<const KernelRow*, std::map<Values, std::int64_t>> variants;
  std::vector<Values> of(cases.size());
  std::vector<bool> stays(cases.size(), true);
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const KernelChoice choice = table.choose(Resolved(cases[i]));
    const KernelRow* row = choice.named;
    if (!row->only_inside) continue;
    subjects[i] = row;
    const bool inside = callable(choice, cases[i]);
    if (!inside) {
      stays[i] = false;
      ++left[row].outside;
    } else if (!row->compiled_for.empty()) {
      of[i] = variant_of(*row, cases[i]);
      ++variants[row][of[i]];
    }
  }

  std::map<const KernelRow*, std::set<Values>> kept;
  for (const auto& [row, found] : variants) {
    kept[row] = chosen(found, most > 0 ? most : std::ssize(found));
    left[row].variants = std::ssize(found);
    left[row].kept = std::ssize(kept[row]);
  }
  // Where the first case of a variant stands, all of it does.
  std::map<std::pair<const KernelRow*, Values>, std::size_t> first;
  std::vector<std::pair<std::size_t, std::size_t>> order;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    if (!stays[i]) continue;
    const KernelRow* row = subjects[i];
    if (row == nullptr || row->compiled_for.empty()) {
      order.emplace_back(i, i);
    } else if (!kept[row].contains(of[i])) {
      ++left[row].of_other_variants;
    } else {
      order.emplace_back(first.try_emplace({row, of[i]}, i).first->second, i);
    }
  }
  std::stable_sort(order.begin(), order.end());
  std::vector<Case> out;
  out.reserve(order.size());
  for (const auto& [group, i] : order) out.push_back(std::move(cases[i]));
  cases = std::move(out);

  std::vector<LeftOut> found;
  for (const KernelRow& row : table.all()) {
    if (const auto at = left.find(&row);
        at != left.end() && (at->second.outside > 0 || at->second.variants > 0))
      found.push_back(at->second);
  }
  return found;
}

void leave_compiled(std::vector<Case>& cases, const KernelTable& table) {
  std::erase_if(cases, [&](const Case& c) { return !table.choose(Resolved(c)).named->compiled_for.empty(); });
}

std::string text_of(const LeftOut& left) {
  std::string text = left.kernel + ":";
  if (left.variants > 0) {
    text += fmt::format(" {} of {} variants", left.kept, left.variants);
    if (left.of_other_variants > 0)
      text +=
          fmt::format(", {} cases of the others left out (--variants takes more)", left.of_other_variants);
  }
  if (left.outside > 0)
    text += fmt::format("{} {} cases of the plan lie outside its limits or need a kernel of the other form",
                        left.variants > 0 ? ";" : "", left.outside);
  return text;
}

}  // namespace samestate
