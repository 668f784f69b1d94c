#include "harness/run/campaign.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace samestate {
namespace {

/// A failure counts as one where it comes each of so many times; else it is flaky.
constexpr int kRuns = 3;
/// Failures that are run again: a kernel that is wrong throughout need not be slow too.
constexpr int kRepeated = 200;

Record repeated(const Case& c, const KernelTable& table, std::atomic<int>& left) {
  Record record = run_case(c, table);
  if (record.judgement.verdict != Verdict::fail || left.fetch_sub(1) <= 0) return record;
  for (int i = 1; i < kRuns; ++i) {
    const Verdict again = run_case(c, table).judgement.verdict;
    if (again == Verdict::fail) continue;
    record.judgement.verdict = Verdict::flaky;
    record.judgement.reason = fmt::format("runs of the same case disagree: fail, then {}; the first: {}",
                                          name_of(again), record.judgement.reason);
    break;
  }
  return record;
}

}  // namespace

CampaignResult run_campaign(std::span<const Case> cases, const KernelTable& table,
                            const CampaignOptions& options, const CampaignObserver& observer) {
  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  std::atomic<std::size_t> next{0};
  std::atomic<std::int64_t> run{0};
  std::atomic<int> repeats_left{kRepeated};
  std::mutex observing;
  std::exception_ptr broken;

  const auto work = [&] {
    while (true) {
      if (options.budget > 0 && std::chrono::duration<double>(Clock::now() - begin).count() > options.budget)
        return;
      const std::size_t i = next.fetch_add(1);
      if (i >= cases.size()) return;
      try {
        {
          const std::lock_guard lock(observing);
          if (broken) return;
          if (observer.started) observer.started(i, cases[i]);
        }
        const Record record = repeated(cases[i], table, repeats_left);
        const std::lock_guard lock(observing);
        ++run;
        if (observer.finished) observer.finished(i, record);
      } catch (...) {
        const std::lock_guard lock(observing);
        if (!broken) broken = std::current_exception();
        return;
      }
    }
  };
  {
    std::vector<std::jthread> threads;
    for (int i = 1; i < std::max(options.threads, 1); ++i) threads.emplace_back(work);
    work();
  }
  if (broken) std::rethrow_exception(broken);
  return {run, static_cast<std::int64_t>(cases.size()) - run};
}

}  // namespace samestate
