#pragma once

#include <functional>
#include <span>
#include <vector>

#include "harness/processes/workers.h"
#include "harness/run/run_case.h"

namespace samestate {

/// How a list of cases is run.
struct CampaignOptions {
  int threads = 1;  ///< cases that run at once in one process, so that calls of a kernel from several threads
                    ///< coincide
  double budget = 0.0;   ///< seconds after which no further case is started; 0 means no limit
  double timeout = 0.0;  ///< seconds that a case may take; 0 means no limit
  double compiling =
      0.0;  ///< seconds after which no further kernel is compiled for its cases (CompileOrder); 0 means no
            ///< limit
  int compilers = 1;         ///< processes that compile at once
  HandOut* ranks = nullptr;  ///< other ranks that run cases too, each as many at once; null if this process
                             ///< is alone
  /// GPUs that share the cases, with a process for each; cases without a cuda kernel use none.
  Devices* devices = nullptr;
  bool fail_fast =
      false;  ///< after a failure no further case is started, and the search for its cause takes seconds only
  bool each_device = false;  ///< runs each case of a cuda kernel on every device (EachDevice); not together
                             ///< with ranks
};

/// Callbacks in the calling process; `index` is the position in the list of cases.
struct CampaignObserver {
  std::function<void(std::size_t index, const Case&)> started;
  std::function<void(std::size_t index, const Record&)> finished;
};

/// The results of a campaign other than its records.
struct CampaignResult {
  std::int64_t run = 0;
  std::int64_t not_started = 0;  ///< cases left out because the budget was spent or `stop` returned true
  /// Cases left out because they would have compiled a kernel after CampaignOptions::compiling: indices into
  /// the list of cases.
  std::vector<std::size_t> not_compiled = {};
  std::int64_t compared = 0;  ///< cases that ran on every device (CampaignOptions::each_device)
};

/// Runs the cases in worker processes (see Workers for requirements on the caller, and for crashes and
/// hangs), in order of start; records arrive in order of completion. A failure is repeated in a process of
/// its own (the first 200 of them; a kernel with more failures is wrong, not flaky). If it is not repeated
/// there, it is searched for after the cases that ran before it in its process, first after those that
/// brought back another failure of its kernel: the cases that bring it back become Record::after, and if none
/// does, the failure is flaky. The cases of a kernel that cost too much are skipped (Losses). Once `stop`
/// returns true no case is started. Throws Error for an invalid case.
CampaignResult run_campaign(std::span<const Case> cases, const KernelTable& table,
                            const CampaignOptions& options, const CampaignObserver& observer,
                            const std::function<bool()>& stop = {});

/// The function that a worker of a campaign runs on each case.
[[nodiscard]] CaseRunner case_runner(const KernelTable& table);

/// The result that a worker reports for a case, and the record made from it.
[[nodiscard]] CaseResult case_result(const Record& record, std::uint64_t edges = 0);
[[nodiscard]] Record record_of(const Case& c, const KernelTable& table, const CaseResult& result);

/// The options of a pool that runs this many cases at once in one process, on its threads; with several
/// devices, in one process per device, among which the threads are divided. Contexts of a device cost memory,
/// so its cases are repeated alone one at a time.
[[nodiscard]] WorkerOptions shared_process(int threads, double timeout, bool on_device,
                                           Devices* devices = nullptr);

}  // namespace samestate
