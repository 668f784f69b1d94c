#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "fuzz/search/coverage.h"
#include "reports/records/judged_share.h"

/// The exit codes of a search and of a sweep, whether one process ran them or `merge` joined them from their shards; the
/// gate's is in cli/gate_result.h.
namespace samestate::cli {

/// How many cases, or kinds of failures, have each verdict.
using VerdictCounts = std::map<Verdict, std::int64_t>;

/// What a search came to.
struct SearchOutcome {
  VerdictCounts cases;
  VerdictCounts kinds;                        ///< of failures, by the verdict that each has shrunk
  std::map<std::string, JudgedShare> shares;  ///< of each kernel
  const Coverage* coverage = nullptr;         ///< null: nobody counted it
  bool filtered = false;                      ///< a filter keeps away what it keeps away
  bool interrupted = false;
};

/// The exit code; why it is no pass where no case says so goes to `remarks`.
[[nodiscard]] int judge_search(const SearchOutcome& search, std::vector<std::string>& remarks);

/// `points`: that were measured now, of `wanted`.
[[nodiscard]] int judge_sweep(VerdictCounts points, std::int64_t wanted, bool interrupted);

/// The names of the verdicts in a run file, and back. Throws Error for a name that is none.
[[nodiscard]] std::map<std::string, std::int64_t> by_name(const VerdictCounts& counts);
[[nodiscard]] VerdictCounts by_verdict(const std::map<std::string, std::int64_t>& counts);

}  // namespace samestate::cli
