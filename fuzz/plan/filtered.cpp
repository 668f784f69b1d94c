#include "fuzz/plan/filtered.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "fuzz/plan/factors.h"
#include "harness/cases/keys.h"
#include "harness/run/makes_calls.h"
#include "reference/error.h"

namespace samestate {
namespace {

/// Returns a number of the range, more often a small one; an open range reaches to four times its end.
std::int64_t within(const KeyCondition::Value& range, const Dice& dice) {
  const double least = std::max(range.least, 0.0);
  const double most = std::isfinite(range.most) ? range.most : std::max(4.0 * least, 64.0);
  const double drawn = dice.between(least + 1.0, most + 1.0) - 1.0;
  return static_cast<std::int64_t>(std::clamp(std::round(drawn), least, most));
}

}  // namespace

Case brought_within(Case c, const KernelRow& kernel, const CaseFilter& filter, const Dice& dice) {
  const System& system = *kernel.system;
  Case out = c;
  for (const KeyCondition& condition : filter.conditions()) {
    if (condition.key == "system" || condition.key == "kernel" || condition.holds(out, {})) continue;
    const KeyCondition::Value& value = dice.pick(condition.any);
    if (condition.key == "law" && value.text == "none") {
      out.law.clear();
      continue;
    }
    const std::string text = value.range ? std::to_string(within(value, dice)) : value.text;
    try {
      out = with_keys(out, condition.key + "=" + text);
    } catch (const Error&) {  // a pattern, none, or a value that the key does not take
    }
  }
  // The name belongs to another system, or the kernel does not promise the contract.
  const bool promised =
      kernel.any_contract || std::ranges::find(kernel.contracts, out.contract) != kernel.contracts.end();
  if (!promised || system.form(out.form) == nullptr || system.regime(out.regime) == nullptr ||
      (!out.law.empty() && system.law(out.law) == nullptr))
    return c;
  settle_cuts(out, kernel);
  // Other sizes of the line may conflict: one that is a multiple of another, or lengths whose sum is no
  // longer T.
  if (!possible(out) || !within_limits(kernel, out)) settle(out, kernel, dice);
  const std::optional<Resolved> r = resolved(out);
  return r && makes_calls(*r, kernel.form) && within_limits(kernel, out) ? out : c;
}

std::vector<std::size_t> places_taken(const std::vector<Case>& cases, const KernelTable& table,
                                      const CaseFilter& filter) {
  const bool kernels = filter.reads_kernel();
  std::vector<std::size_t> out;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const std::string_view kernel =
        kernels ? std::string_view(table.choose(Resolved(cases[i])).named->name) : std::string_view();
    if (filter.empty() || filter.takes(cases[i], kernel)) out.push_back(i);
  }
  return out;
}

void keep_taken(std::vector<Case>& cases, const KernelTable& table, const CaseFilter& filter) {
  std::vector<Case> kept;
  for (const std::size_t i : places_taken(cases, table, filter)) kept.push_back(std::move(cases[i]));
  cases = std::move(kept);
}

std::vector<std::string> values_not_met(const CaseFilter& filter, const std::vector<Case>& cases,
                                        const KernelTable& table) {
  std::vector<std::string> out;
  for (const KeyCondition& condition : filter.conditions()) {
    if (condition.any.size() < 2 && !cases.empty()) continue;
    for (const KeyCondition::Value& value : condition.any) {
      if (value.range && value.least != value.most) continue;
      const KeyCondition alone{condition.key, {value}};
      const bool reads = condition.key == "kernel";
      const bool met = std::ranges::any_of(cases, [&](const Case& c) {
        return alone.holds(
            c, reads ? std::string_view(table.choose(Resolved(c)).named->name) : std::string_view());
      });
      if (!met) out.push_back(condition.key + "=" + value.text);
    }
  }
  return out;
}

}  // namespace samestate
