#pragma once

#include <functional>
#include <span>
#include <vector>

#include "harness/processes/workers.h"
#include "harness/run/run_case.h"

namespace samestate {

/// How a list of cases is run.
struct CampaignOptions {
  int threads = 1;       ///< cases at a time, in one process, so that threads of one kernel meet
  double budget = 0.0;   ///< seconds after which no case is started; 0: no limit
  double timeout = 0.0;  ///< seconds that a case may take; 0: no limit
  double compiling =
      0.0;            ///< seconds after which no kernel is compiled for its cases (CompileOrder); 0: no limit
  int compilers = 1;  ///< processes that compile at a time
  HandOut* ranks = nullptr;  ///< that run cases too, each as many at a time; none: this process alone
  /// GPUs that share the cases, each by a process of its own; of cases without a cuda kernel none is asked.
  Devices* devices = nullptr;
  bool fail_fast =
      false;  ///< behind a failure none is started, and what it hangs on is looked for in seconds
  bool each_device = false;  ///< each case of a cuda kernel on every one of them: EachDevice; not with ranks
};

/// Callbacks in the calling process; `index` counts in the list of cases.
struct CampaignObserver {
  std::function<void(std::size_t index, const Case&)> started;
  std::function<void(std::size_t index, const Record&)> finished;
};

/// What a campaign did beyond its records.
struct CampaignResult {
  std::int64_t run = 0;
  std::int64_t not_started = 0;  ///< left when the budget was spent or `stop` said so
  /// Left since they would have compiled a kernel after CampaignOptions::compiling: places in the list of cases.
  std::vector<std::size_t> not_compiled = {};
  std::int64_t compared = 0;  ///< cases that every device ran (CampaignOptions::each_device)
};

/// Runs the cases in a worker process (see Workers for what that asks of the caller and for crashes and
/// hangs), in order of start; records arrive in order of finish. A failure is run again in processes of its own (the
/// first 200; a kernel with more is wrong, not flaky). Where it does not come there it is looked for behind the cases
/// that ran before it in its process, first behind what brought another failure of its kernel: what brings it back is
/// Record::after, and where nothing does it is flaky. The cases of a kernel that
/// cost too much are skipped (Losses). Once `stop` is true no case is started. Throws Error for a case that
/// is no case.
CampaignResult run_campaign(std::span<const Case> cases, const KernelTable& table,
                            const CampaignOptions& options, const CampaignObserver& observer,
                            const std::function<bool()>& stop = {});

/// What a worker of a campaign runs.
[[nodiscard]] CaseRunner case_runner(const KernelTable& table);

/// What a worker reports of a case, and the record of it.
[[nodiscard]] CaseResult case_result(const Record& record, std::uint64_t edges = 0);
[[nodiscard]] Record record_of(const Case& c, const KernelTable& table, const CaseResult& result);

/// The options of a pool that runs so many cases at a time in one process, on its threads; on several devices in a process
/// of each, among which the threads are divided. Contexts of a device cost memory: its cases are repeated alone one at a
/// time.
[[nodiscard]] WorkerOptions shared_process(int threads, double timeout, bool on_device,
                                           Devices* devices = nullptr);

}  // namespace samestate
