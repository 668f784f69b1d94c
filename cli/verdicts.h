#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "fuzz/search/coverage.h"
#include "reports/records/judged_share.h"

/// The exit codes of a search and of a sweep, whether one process ran them or `merge` joined them from their
/// shards; the gate's is in cli/gate_result.h.
namespace samestate::cli {

/// How many cases, or kinds of failures, have each verdict.
using VerdictCounts = std::map<Verdict, std::int64_t>;

/// The result of a search.
struct SearchOutcome {
  VerdictCounts cases;
  VerdictCounts kinds;                        ///< failures by the verdict after shrinking
  std::map<std::string, JudgedShare> shares;  ///< one for each kernel
  const Coverage* coverage = nullptr;         ///< null if it was not counted
  bool filtered = false;                      ///< a filter may prevent it from reaching everything
  bool interrupted = false;
};

/// The exit code; if it is not a pass and no case says why, `remarks` receives the reason.
[[nodiscard]] int judge_search(const SearchOutcome& search, std::vector<std::string>& remarks);

/// `points` are those measured now, out of `wanted`.
[[nodiscard]] int judge_sweep(VerdictCounts points, std::int64_t wanted, bool interrupted);

/// The names of the verdicts in a run file, and the inverse. Throws Error for an unknown name.
[[nodiscard]] std::map<std::string, std::int64_t> by_name(const VerdictCounts& counts);
[[nodiscard]] VerdictCounts by_verdict(const std::map<std::string, std::int64_t>& counts);

}  // namespace samestate::cli
