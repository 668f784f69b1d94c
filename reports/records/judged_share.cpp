#include "reports/records/judged_share.h"

#include <fmt/format.h>

#include <limits>
#include <set>
#include <utility>

#include "oracles/reasons.h"
#include "reports/records/summary.h"

namespace samestate {

void add_to(std::map<std::string, JudgedShare>& shares, const Record& record) {
  JudgedShare& of = shares[record.kernel];
  const Verdict verdict = record.judgement.verdict;
  if (verdict == Verdict::unsupported) {
    ++of.outside;
    return;
  }
  if (verdict == Verdict::vacuous && record.judgement.gate == kZeroGate) return;  // no judge could say more
  ++of.planned;
  of.judged += is_judged(verdict) || is_failure(verdict);
  of.vacuous += verdict == Verdict::vacuous;
  of.no_device += verdict == Verdict::skipped && record.judgement.gate == kNoDevice;
}

std::map<std::string, JudgedShare> judged_shares(std::span<const Record> records,
                                                 const std::map<std::string, std::int64_t>& not_started) {
  std::map<std::string, JudgedShare> shares;
  for (const Record& record : records) add_to(shares, record);
  for (const auto& [kernel, count] : not_started) shares[kernel].planned += count;
  return shares;
}

std::vector<std::string> too_little(const std::map<std::string, JudgedShare>& shares, double least) {
  std::vector<std::string> out;
  for (const auto& [kernel, of] : shares) {
    if (of.planned < kFewestPlanned || of.nowhere() || of.share() >= least) continue;
    const std::int64_t rest = of.planned - of.judged - of.vacuous;
    out.push_back(fmt::format(
        "{}: {} of {} cases inside its limits were judged, less than {:g} %: {} vacuous, {} not run", kernel,
        of.judged, of.planned, 100 * least, of.vacuous, rest));
  }
  return out;
}

std::string without_device(std::span<const Record> records) {
  std::int64_t cases = 0, kernels = 0;
  for (const auto& [kernel, of] : judged_shares(records)) {
    cases += of.no_device;
    kernels += of.no_device > 0;
  }
  if (cases == 0) return "";
  return fmt::format(
      "not run for want of a device: {} of {}; on a machine with one: samestate gate --device cuda",
      counted(cases, "case"), counted(kernels, "kernel"));
}

std::int64_t mark_missing_devices(std::span<Record> records) {
  const auto missing = [](const Record& r) {
    return r.judgement.verdict == Verdict::skipped && r.judgement.gate == kNoDevice;
  };
  std::set<std::pair<std::string, std::string>> ran;
  for (const Record& r : records) {
    const Verdict verdict = r.judgement.verdict;
    // A law that does not fit its case makes no calls.
    const bool vacuous = verdict == Verdict::vacuous && r.judgement.gate != "law";
    if (verdict == Verdict::pass || vacuous || verdict == Verdict::flaky ||
        (verdict == Verdict::fail && r.judgement.gate != "limits"))
      ran.emplace(r.kernel, r.contract);
  }
  std::int64_t marked = 0;
  for (Record& r : records) {
    if (!missing(r) || !ran.contains({r.kernel, r.contract})) continue;
    r.judgement.verdict = Verdict::fail;
    r.judgement.gate = "limits";
    r.judgement.ratio = std::numeric_limits<double>::infinity();
    r.judgement.reason = fmt::format("refused: {}; other cases of {} under contract {} ran in this run",
                                     r.judgement.reason, r.kernel, r.contract);
    ++marked;
  }
  return marked;
}

}  // namespace samestate
