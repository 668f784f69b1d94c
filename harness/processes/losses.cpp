#include "harness/processes/losses.h"

#include <fmt/format.h>

namespace samestate {

void Losses::add(const Record& record) {
  const Judgement& j = record.judgement;
  const bool hung = j.verdict == Verdict::timeout || (j.verdict == Verdict::flaky && j.gate == "timeout");
  const bool goes_on = record.device == "cpu" || (record.spent.calls > 0 && !record.spent.lost);
  const bool thrown = j.gate == "judge" || j.gate == kRefusal || (j.gate == "exception" && goes_on);
  const bool lost = (j.verdict == Verdict::crash && !thrown) ||
                    (j.verdict == Verdict::flaky && (j.gate == "signal" || j.gate == "exit"));
  const bool trespassed = j.verdict == Verdict::fail && j.gate == "memory" && record.spent.lost;
  const auto found = by_kernel_.find(record.kernel);
  if (found != by_kernel_.end() && found->second.trespasses > 0) found->second.starting += record.spent.start;
  if (!hung && !lost && !trespassed) return;
  Cost& cost = by_kernel_[record.kernel];
  if (trespassed) {
    ++cost.trespasses;
    return;
  }
  ++cost.processes;
  if (hung) cost.hung += record.seconds;
}

bool Losses::skip(Record& record) const {
  const auto found = by_kernel_.find(record.kernel);
  if (found == by_kernel_.end()) return false;
  const Cost& cost = found->second;
  const bool trespassed = cost.trespasses >= kMostTrespasses && cost.starting >= kMostStartingSeconds;
  if (cost.processes < kMostLostProcesses && cost.hung < kMostHungSeconds && !trespassed) return false;
  record.judgement = {};
  record.judgement.verdict = Verdict::skipped;
  if (trespassed) {
    record.judgement.reason = fmt::format(
        "kernel {} has left its memory in {} cases, after each of which its process was started anew, {:.0f} "
        "s together: the "
        "limit is {} cases and {:.0f} s; mend one of those, or name single cases with `samestate repro`",
        record.kernel, cost.trespasses, cost.starting, kMostTrespasses, kMostStartingSeconds);
    return true;
  }
  record.judgement.reason = fmt::format(
      "kernel {} has crashed or hung in {} cases, {:.0f} s of them in cases that never ended: the "
      "limit is {} cases or {:.0f} s; mend one of those, or name single cases with `samestate "
      "repro`",
      record.kernel, cost.processes, cost.hung, kMostLostProcesses, kMostHungSeconds);
  return true;
}

}  // namespace samestate
