#include "reports/records/surprise.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "reports/records/summary.h"

namespace samestate {
namespace {

using Key = std::tuple<std::string, std::string, std::string, std::string, std::string>;

struct Peers {
  std::vector<std::size_t> members;
  std::vector<double> ratios;  ///< ratios above 0, sorted
};

/// This follows by construction only where each element is compared with its worst-case bound; a case that
/// failed attained nothing. An exact output is no exception: a value that was not rounded has no half ulp.
bool is_attained(const Key& key, const Peers& group, std::span<const Record> records) {
  return std::get<4>(key) == "element" && !group.ratios.empty() && group.ratios.front() >= kAttained &&
         group.ratios.back() <= 1.0 + kAttainedWhisker &&
         std::none_of(group.members.begin(), group.members.end(), [&](std::size_t i) {
           const Judgement& j = records[i].judgement;
           return is_failure(j.verdict) || !std::isfinite(j.ratio);
         });
}

Surprise surprise_of(std::size_t record, double ratio, const Peers& group, const Spread& spread) {
  Surprise out{record, 0.0, std::numeric_limits<double>::quiet_NaN(), std::ssize(group.ratios)};
  if (out.group < kLeastGroup) return out;
  out.median = spread.p50;
  out.tail = std::log(ratio / spread.p50) / std::max(std::log(spread.p90 / spread.p50), std::log(kLeastStep));
  return out;
}

}  // namespace

std::int64_t Surprises::attained_cases() const {
  std::int64_t cases = 0;
  for (const AttainedGroup& group : attained) cases += group.cases;
  return cases;
}

Surprises surprises_of(std::span<const Record> records) {
  std::map<Key, Peers> groups;
  for (std::size_t i = 0; i < records.size(); ++i) {
    const Record& r = records[i];
    if (!is_judged(r.judgement.verdict)) continue;
    Peers& group = groups[{r.system, r.form, r.contract, r.law, r.judgement.gate}];
    group.members.push_back(i);
    // An exact output, or a value that is not a number, says nothing about its group's spread.
    if (r.judgement.ratio > 0.0 && std::isfinite(r.judgement.ratio))
      group.ratios.push_back(r.judgement.ratio);
  }
  Surprises out;
  for (auto& [key, group] : groups) {
    std::sort(group.ratios.begin(), group.ratios.end());
    if (is_attained(key, group, records)) {
      const auto& [system, form, contract, law, gate] = key;
      out.attained.push_back({system, form, contract, law, std::ssize(group.members), group.ratios.front(),
                              group.ratios.back()});
      continue;
    }
    const Spread spread = spread_of(group.ratios);
    for (const std::size_t i : group.members)
      out.ranked.push_back(surprise_of(i, records[i].judgement.ratio, group, spread));
  }
  std::sort(out.ranked.begin(), out.ranked.end(), [&](const Surprise& a, const Surprise& b) {
    const Judgement& x = records[a.record].judgement;
    const Judgement& y = records[b.record].judgement;
    if (is_failure(x.verdict) != is_failure(y.verdict)) return is_failure(x.verdict);
    if (!is_failure(x.verdict) && a.tail != b.tail) return less_or_unknown(b.tail, a.tail);
    if (less_or_unknown(x.ratio, y.ratio) || less_or_unknown(y.ratio, x.ratio))
      return less_or_unknown(y.ratio, x.ratio);
    return a.record < b.record;
  });
  return out;
}

std::string attained_line(const Surprises& surprises, std::string_view what) {
  if (surprises.attained.empty()) return "";
  const std::int64_t cases = surprises.attained_cases();
  const std::size_t groups = surprises.attained.size();
  return fmt::format(
      "not ranked: {} {}{} of {} {} whose ratios are all {} to 1 (or 0: exact), as of an output that is "
      "rounded once",
      cases, what, cases == 1 ? "" : "s", groups, groups == 1 ? "group" : "groups", kAttained);
}

}  // namespace samestate
