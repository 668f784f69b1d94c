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
  if (!hung && !lost) return;
  Cost& cost = by_kernel_[record.kernel];
  ++cost.processes;
  if (hung) cost.hung += record.seconds;
}

bool Losses::skip(Record& record) const {
  const auto found = by_kernel_.find(record.kernel);
  if (found == by_kernel_.end()) return false;
  const Cost& cost = found->second;
  if (cost.processes < kMostLostProcesses && cost.hung < kMostHungSeconds) return false;
  record.judgement = {};
  record.judgement.verdict = Verdict::skipped;
  record.judgement.reason = fmt::format(
      "kernel {} has crashed or hung in {} cases, {:.0f} s of them in cases that never ended: the "
      "limit is {} cases or {:.0f} s; mend one of those, or name single cases with `samestate "
      "repro`",
      record.kernel, cost.processes, cost.hung, kMostLostProcesses, kMostHungSeconds);
  return true;
}

}  // namespace samestate
