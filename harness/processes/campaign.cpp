#include "harness/processes/campaign.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <map>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "harness/processes/losses.h"

namespace samestate {
namespace {

/// A failure counts as one where it comes each of so many times; else it is flaky.
constexpr int kRuns = 3;
/// Failures that are run again: a kernel that is wrong throughout need not be slow too.
constexpr int kRepeated = 200;

/// A case that names no kernel runs on the CPU.
bool any_on_device(std::span<const Case> cases, const KernelTable& table) {
  std::set<std::string_view> names;
  for (const KernelRow& row : table.all()) {
    if (row.device != "cpu") names.insert(row.name);
  }
  return std::any_of(cases.begin(), cases.end(), [&](const Case& c) { return names.contains(c.kernel); });
}

class Campaign {
 public:
  Campaign(std::span<const Case> cases, const KernelTable& table, const CampaignOptions& options,
           const CampaignObserver& observer, const std::function<bool()>& stop)
      : cases_(cases), table_(table), options_(options), observer_(observer), stop_(stop) {}

  CampaignResult run() {
    if (cases_.empty()) return {};
    Workers workers([this](const Case& c) { return case_result(run_case(c, table_)); },
                    shared_process(options_.threads, options_.timeout, any_on_device(cases_, table_)));
    workers.run([this](std::int64_t) { return next(); },
                {{}, [this](const Task& task, const CaseResult& result) { take(task, result); }});
    return {run_, std::ssize(cases_) - run_};
  }

 private:
  using Clock = std::chrono::steady_clock;

  std::optional<Task> next() {
    if (!again_.empty()) {
      const std::size_t index = again_.front();
      again_.pop_front();
      return task(index);
    }
    while (next_ < cases_.size()) {
      const std::chrono::duration<double> since = Clock::now() - begin_;
      if ((options_.budget > 0 && since.count() > options_.budget) || (stop_ && stop_())) return std::nullopt;
      const std::size_t index = next_++;
      if (observer_.started) observer_.started(index, cases_[index]);
      if (losses_.none()) return task(index);
      Record planned = planned_record(cases_[index], table_);
      if (!losses_.skip(planned)) return task(index);
      finish(index, planned);
    }
    return std::nullopt;
  }

  [[nodiscard]] Task task(std::size_t index) const {
    return {static_cast<std::int64_t>(index), cases_[index]};
  }

  void take(const Task& task, const CaseResult& result) {
    const auto index = static_cast<std::size_t>(task.index);
    const auto failed = failed_.find(index);
    const Verdict verdict = result.judgement.verdict;
    Record now = record_of(task.c, table_, result);
    losses_.add(now);
    if (failed == failed_.end()) {
      if (verdict != Verdict::fail || repeats_left_-- <= 0) return finish(index, now);
      failed_.emplace(index, Failed{std::move(now), 1});
      again_.push_back(index);
      return;
    }
    auto& [record, runs] = failed->second;
    if (verdict == Verdict::fail && ++runs < kRuns) return again_.push_back(index);
    if (verdict != Verdict::fail) {
      record.judgement.verdict = Verdict::flaky;
      record.judgement.reason = fmt::format("runs of the same case disagree: fail, then {}; the first: {}",
                                            name_of(verdict), record.judgement.reason);
    }
    const Record last = std::move(record);
    failed_.erase(failed);
    finish(index, last);
  }

  void finish(std::size_t index, const Record& record) {
    ++run_;
    if (observer_.finished) observer_.finished(index, record);
  }

  /// A failure that is being run again: its first record.
  struct Failed {
    Record record;
    int runs;
  };

  std::span<const Case> cases_;
  const KernelTable& table_;
  const CampaignOptions& options_;
  const CampaignObserver& observer_;
  const std::function<bool()>& stop_;
  Clock::time_point begin_ = Clock::now();
  std::size_t next_ = 0;
  std::deque<std::size_t> again_;
  std::map<std::size_t, Failed> failed_;
  int repeats_left_ = kRepeated;
  std::int64_t run_ = 0;
  Losses losses_;
};

}  // namespace

CampaignResult run_campaign(std::span<const Case> cases, const KernelTable& table,
                            const CampaignOptions& options, const CampaignObserver& observer,
                            const std::function<bool()>& stop) {
  return Campaign(cases, table, options, observer, stop).run();
}

CaseResult case_result(const Record& record, std::uint64_t edges) {
  return {record.judgement, record.seconds, edges};
}

Record record_of(const Case& c, const KernelTable& table, const CaseResult& result) {
  Record record = planned_record(c, table);
  record.judgement = result.judgement;
  record.seconds = result.seconds;
  return record;
}

WorkerOptions shared_process(int threads, double timeout, bool on_device) {
  WorkerOptions options;
  options.threads = threads;
  options.timeout = timeout;
  options.apart = on_device ? 1 : 0;
  options.confirm = true;
  return options;
}

}  // namespace samestate
