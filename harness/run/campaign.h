#pragma once

#include <functional>
#include <span>

#include "harness/run/run_case.h"

namespace samestate {

/// How a list of cases is run.
struct CampaignOptions {
  int threads = 1;      ///< cases at a time; a kernel on a device is called by one thread at a time
  double budget = 0.0;  ///< seconds after which no case is started; 0: no limit
};

/// Callbacks, one at a time; `index` counts in the list of cases.
struct CampaignObserver {
  std::function<void(std::size_t index, const Case&)> started;
  std::function<void(std::size_t index, const Record&)> finished;
};

/// What a campaign did beyond its records.
struct CampaignResult {
  std::int64_t run = 0;
  std::int64_t not_started = 0;  ///< left when the budget was spent
};

/// Runs the cases, in order of start; records arrive in order of finish. A failure is run again, and is flaky
/// where it does not come each time (the first 200; a kernel with more is wrong, not flaky).
CampaignResult run_campaign(std::span<const Case> cases, const KernelTable& table,
                            const CampaignOptions& options, const CampaignObserver& observer);

}  // namespace samestate
