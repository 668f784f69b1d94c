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

/// A search with fresh cases. Its records depend on seed, filter, shard and the number of cases alone.
struct SearchOptions {
  SearchFilter filter;
  std::uint64_t seed = 1;
  std::int64_t shard = 0;  ///< this one of `shards`: the cases with index mod shards = shard
  std::int64_t shards = 1;
  double budget =
      0.0;  ///< seconds after which no case is started, those of a resumed search included; 0: none
  std::int64_t max_cases = 0;  ///< indices 0..max_cases-1 over all shards; 0: no limit
  WorkerOptions workers;
  HandOut* ranks = nullptr;          ///< that run cases too, each as many at a time; none: this process alone
  std::filesystem::path checkpoint;  ///< empty: none
  bool resume = false;
  std::string build;  ///< of the command: a checkpoint of another build is refused
};

/// A case that did not pass.
struct Found {
  std::int64_t index = 0;
  Case c;
  Record record;
  Task task = {};  ///< of SearchResult::history; one of a checkpoint has no process
};

struct SearchObserver {
  std::function<void(const Task&)> started;
  /// `replayed`: read from the checkpoint. A case of the checkpoint has no `started`.
  std::function<void(const Task&, const Record&, bool replayed)> finished;
};

struct SearchResult {
  explicit SearchResult(const CaseSource& source) : coverage(source) {}
  Coverage coverage;
  std::map<Verdict, std::int64_t> counts;
  std::vector<Found> failures;  ///< fail, crash and timeout, by index; at most kKeptFailures
  /// Passes with the largest ratios, the worst first; at most 5. Without those of a bound that is attained
  /// (harness/records/attained.h).
  std::vector<Found> worst;
  std::int64_t cases = 0;
  std::int64_t replayed = 0;  ///< of them, read from the checkpoint
  double seconds = 0.0;       ///< of this process
  double elapsed = 0.0;       ///< with those before a resume
  std::string lost;  ///< why the checkpoint could not be written, which ended the search; empty: it could
  History history;   ///< of the cases of this process
};
inline constexpr std::size_t kKeptFailures = 10'000;

/// Runs the search in worker processes (see Workers for what that asks of the caller). `stop` ends it as a
/// spent budget does, and so does a checkpoint that cannot be written: what was found before that is safe. Throws Error for options that contradict each other and for a checkpoint that cannot be
/// used.
[[nodiscard]] SearchResult search(const KernelTable& table, const SearchOptions& options,
                                  const SearchObserver& observer, const std::function<bool()>& stop = {});

/// What a worker runs: the case, judged, and the edges that it reaches.
[[nodiscard]] CaseRunner runner_of(const KernelTable& table);

}  // namespace samestate
