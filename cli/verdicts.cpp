#include "cli/verdicts.h"

#include <fmt/format.h>

#include <algorithm>

#include "cli/commands.h"
#include "reference/error.h"

namespace samestate::cli {
namespace {

/// The share of a kernel's cases inside its limits that a search must have judged.
constexpr double kLeastJudged = 0.5;

std::int64_t of(const VerdictCounts& counts, Verdict verdict) {
  const auto found = counts.find(verdict);
  return found == counts.end() ? 0 : found->second;
}

}  // namespace

int judge_search(const SearchOutcome& search, std::vector<std::string>& remarks) {
  if (of(search.kinds, Verdict::crash) + of(search.kinds, Verdict::timeout) > 0) return kCrash;
  if (of(search.kinds, Verdict::fail) > 0) return kFail;
  if (of(search.kinds, Verdict::flaky) > 0) return kFlaky;
  std::vector<CoverageRow> missing;
  if (search.coverage != nullptr && !search.filtered) missing = search.coverage->missing();
  for (const CoverageRow& row : missing) {
    remarks.push_back(fmt::format("{}: {} {} was never judged in {} cases", row.system, row.dimension,
                                  row.value, search.coverage->judged(row.system)));
  }
  const std::vector<std::string> few = too_little(search.shares, kLeastJudged);
  remarks.insert(remarks.end(), few.begin(), few.end());
  const bool passed = of(search.cases, Verdict::pass) > 0;
  if (!missing.empty() || (!few.empty() && passed)) return kVacuous;
  if (passed) return search.interrupted ? kVacuous : kPass;
  return of(search.cases, Verdict::vacuous) > 0 || search.cases.empty() ? kVacuous : kNothingRan;
}

int judge_sweep(VerdictCounts points, std::int64_t wanted, bool interrupted) {
  if (points[Verdict::crash] + points[Verdict::timeout] > 0) return kCrash;
  if (interrupted) return points[Verdict::fail] > 0 ? kFail : kVacuous;
  const std::int64_t not_run = points[Verdict::skipped] + points[Verdict::unsupported];
  if (wanted > 0 && not_run == wanted) return kNothingRan;
  if (points[Verdict::fail] > 0) return kFail;
  return points[Verdict::flaky] > 0 ? kFlaky : kPass;
}

std::map<std::string, std::int64_t> by_name(const VerdictCounts& counts) {
  std::map<std::string, std::int64_t> out;
  for (const auto& [verdict, count] : counts) out[std::string(name_of(verdict))] = count;
  return out;
}

VerdictCounts by_verdict(const std::map<std::string, std::int64_t>& counts) {
  VerdictCounts out;
  for (const auto& [name, count] : counts) {
    const auto found = std::find_if(kVerdicts.begin(), kVerdicts.end(),
                                    [&](Verdict verdict) { return name == name_of(verdict); });
    if (found == kVerdicts.end())
      throw Error(fmt::format("{} is not a verdict; a run file was changed", name));
    out[*found] += count;
  }
  return out;
}

}  // namespace samestate::cli
