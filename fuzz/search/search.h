#pragma once

#include <array>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "fuzz/search/case_source.h"
#include "fuzz/search/coverage.h"
#include "harness/cases/shards.h"
#include "harness/processes/campaign.h"
#include "harness/processes/history.h"

namespace samestate {

/// A search with new cases. Its records depend only on seed, filter, shard and the number of cases.
struct SearchOptions {
  SearchFilter filter;
  std::uint64_t seed = 1;
  std::int64_t shard = 0;  ///< the index of this shard out of `shards`: the cases with index mod shards =
                           ///< shard
  std::int64_t shards = 1;
  double budget =
      0.0;  ///< seconds after which no case is started, including those before a resume; 0 means no limit
  std::int64_t max_cases = 0;  ///< indices 0..max_cases-1 over all shards; 0 means no limit
  WorkerOptions workers;
  HandOut* ranks = nullptr;  ///< other ranks that run cases too, each as many at once; null if this process
                             ///< is alone
  std::filesystem::path checkpoint;  ///< empty means no checkpoint
  bool resume = false;
  std::string build;  ///< the build of the command: a checkpoint of another build is refused
};

/// A case that did not pass.
struct Found {
  std::int64_t index = 0;
  Case c;
  Record record;
  Task task = {};  ///< for SearchResult::history; a case from a checkpoint has no process
};

struct SearchObserver {
  std::function<void(const Task&)> started;
  /// `replayed` is true if it was read from the checkpoint. A case of the checkpoint has no `started`.
  std::function<void(const Task&, const Record&, bool replayed)> finished;
};

struct SearchResult {
  explicit SearchResult(const CaseSource& source) : coverage(source) {}
  Coverage coverage;
  std::map<Verdict, std::int64_t> counts;
  std::vector<Found> failures;  ///< fail, crash and timeout, by index; at most kKeptFailures
  /// The passes with the largest ratios, the worst first; at most 5. Those of a bound that is attained are
  /// left out (harness/records/attained.h).
  std::vector<Found> worst;
  std::int64_t cases = 0;
  std::int64_t replayed = 0;  ///< the number of those read from the checkpoint
  double seconds = 0.0;       ///< the time of this process only
  double elapsed = 0.0;       ///< including those before a resume
  std::string lost;  ///< why the checkpoint could not be written, which ended the search; empty if it could
  History history;   ///< for the cases of this process
};
inline constexpr std::size_t kKeptFailures = 10'000;

/// Runs the search in worker processes (see Workers for the requirements on the caller). `stop` ends it like
/// a spent budget, and so does a checkpoint that cannot be written; what was found before is kept. Throws
/// Error for options that contradict each other and for a checkpoint that cannot be used.
[[nodiscard]] SearchResult search(const KernelTable& table, const SearchOptions& options,
                                  const SearchObserver& observer, const std::function<bool()>& stop = {});

/// The function that a worker runs: it judges the case, and finds the edges that it reaches.
[[nodiscard]] CaseRunner runner_of(const KernelTable& table);

}  // namespace samestate
