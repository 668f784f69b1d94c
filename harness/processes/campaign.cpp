#include "harness/processes/campaign.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "harness/cases/shards.h"
#include "harness/processes/compile_order.h"
#include "harness/processes/each_device.h"
#include "harness/processes/history.h"
#include "harness/processes/losses.h"
#include "harness/processes/other_tuning.h"
#include "harness/run/call_variant.h"
#include "oracles/reasons.h"

namespace samestate {
namespace {

/// A failure counts as reproducible if it comes back in each of this many runs; all but the first have a
/// process of their own. A device, whose contexts take seconds to create, gets one run fewer.
constexpr int kRuns = 3;
constexpr int kRunsOnDevice = 2;
/// For this many failures of one kernel, the cases that ran before them are replayed.
constexpr int kReplayed = 3;
/// The number of failures that are run again: a kernel that is wrong throughout need not be slow too.
constexpr int kRepeated = 200;
/// Seconds for replaying the cases before a failure if the run ends with that failure; and seconds for trying
/// what caused one failure of a kernel on its other failures.
constexpr double kReplayFast = 6.0;
constexpr double kTryKnown = 20.0;
/// Seconds for running failures again in new processes: after that it is clear that the kernel is wrong.
constexpr double kRepeatSeconds = 60.0;

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
      : cases_(cases), table_(table), options_(options), observer_(observer), stop_(stop) {
    if (options.each_device && options.devices != nullptr && options.ranks == nullptr)
      each_device_.emplace(*options.devices);
  }

  CampaignResult run() {
    if (cases_.empty()) return {};
    Workers workers(case_runner(table_), shared_process(options_.threads, options_.timeout,
                                                        any_on_device(cases_, table_), options_.devices));
    OtherRanks others{options_.ranks, 0.0, [this] { return ending(); },
                      [this](const Task& t) { return again(t); }};
    for (const Case& c : cases_) others.work += options_.ranks != nullptr ? judging_work(c) : 0.0;
    workers.run([this](std::int64_t) { return next(); },
                {[this](const Task& task) { start(task); },
                 [this](const Task& task, const CaseResult& result) { take(task, result); },
                 [this] { return waited_enough(); }},
                others);
    finish_abandoned();
    if (each_device_) {
      for (const auto& [index, record] : each_device_->rest()) finish(index, record);
    }
    for (Unrepeated& failure : unrepeated_) look_before(failure);
    return {run_, std::ssize(cases_) - run_ - std::ssize(order_.left()), order_.left(),
            each_device_ ? each_device_->compared() : 0};
  }

 private:
  using Clock = std::chrono::steady_clock;

  std::optional<Task> next() {
    if (!again_.empty()) {
      const std::size_t index = again_.front();
      again_.pop_front();
      Task again = task(index);
      again.fresh = true;
      const bool otherwise = other_tuning_.waits(index);
      if (otherwise) again.autotune = other_tuning_.setting(index);
      again.device = (otherwise ? other_tuning_.record(index) : failed_.at(index).record).gpu;
      return again;
    }
    if (each_device_ && !interrupted()) {
      if (const std::optional<EachDevice::Run> run = each_device_->next()) {
        Task other = task(run->index);
        other.device = run->device;
        return other;
      }
    }
    // A failed case that is being run again ends the run either way, whether it fails again or is flaky.
    while (!ending() && !(options_.fail_fast && is_repeating())) {
      const std::optional<std::size_t> index = order_.next(elapsed());
      if (!index) break;
      Task next = task(*index);
      if (!is_skipped(next)) return next;
    }
    return std::nullopt;
  }

  /// Returns the seconds since the campaign began.
  [[nodiscard]] double elapsed() const {
    return std::chrono::duration<double>(Clock::now() - begin_).count();
  }

  [[nodiscard]] bool is_repeating() const {
    return !failed_.empty() || !unrepeated_.empty() || !other_tuning_.none();
  }

  /// Returns true if no further case is started.
  [[nodiscard]] bool ending() const {
    return (options_.budget > 0 && elapsed() > options_.budget) || interrupted();
  }

  /// Returns true if running cases are ended as well: a kernel that hangs gets the same grace as any other
  /// after an interrupt. Other ranks end their own cases.
  bool waited_enough() {
    constexpr std::chrono::seconds kGrace(5);
    if (options_.ranks != nullptr || !interrupted()) return false;
    if (!interrupted_since_) interrupted_since_ = Clock::now();
    return Clock::now() - *interrupted_since_ > kGrace;
  }

  /// Finishes the cases that were ended while they ran: a failure that was to be repeated is kept, any other
  /// case was not judged.
  void finish_abandoned() {
    if (!interrupted()) return;
    for (std::size_t i = 0; i < cases_.size(); ++i) {
      if (!started_[i] || finished_[i]) continue;
      if (other_tuning_.waits(i)) {
        finish(i, other_tuning_.give_up(i));
        continue;
      }
      const auto failed = failed_.find(i);
      const auto alone = std::ranges::find(unrepeated_, i, &Unrepeated::index);
      if (alone != unrepeated_.end() || (each_device_ && each_device_->waits(i))) continue;
      Record now = failed != failed_.end() ? not_run_again(failed->second.record, failed->second.task)
                                           : planned_record(cases_[i], table_);
      if (failed == failed_.end()) {
        now.judgement.verdict = Verdict::skipped;
        now.judgement.reason = "interrupted while it ran";
      }
      finish(i, now);
    }
  }

  /// Returns true if the case belongs to a kernel that is no longer run, and finishes the case.
  bool is_skipped(const Task& task) {
    if (losses_.none()) return false;
    Record planned = planned_record(task.c, table_);
    if (!losses_.skip(planned)) return false;
    start(task);
    finish(static_cast<std::size_t>(task.index), planned);
    return true;
  }

  /// Returns true if a case that came back from a rank is handed out again.
  bool again(const Task& task) {
    const auto index = static_cast<std::size_t>(task.index);
    return failed_.contains(index) || other_tuning_.waits(index) || !is_skipped(task);
  }

  void start(const Task& task) {
    const auto index = static_cast<std::size_t>(task.index);
    if (started_[index]) return;
    started_[index] = true;
    if (observer_.started) observer_.started(index, task.c);
  }

  [[nodiscard]] Task task(std::size_t index) const {
    Task out{static_cast<std::int64_t>(index), cases_[index]};
    if (options_.ranks != nullptr) out.work = judging_work(out.c);
    return out;
  }

  void take(const Task& task, const CaseResult& result) {
    const auto index = static_cast<std::size_t>(task.index);
    history_.add(task);
    if (other_tuning_.waits(index)) return take_tuned_otherwise(index, result);
    if (each_device_ && each_device_->waits(index)) return take_other(task, result);
    const auto failed = failed_.find(index);
    const Verdict verdict = result.judgement.verdict;
    Record now = record_of(task.c, table_, result);
    order_.add(now.spent.compile + now.spent.tune);
    const bool ended = result.judgement.gate == "signal" || result.judgement.gate == "exit";
    // Whatever ended the campaign may also have ended the process or what the kernel talked to, or kept it
    // from starting.
    if (interrupted() && (ended || (verdict == Verdict::skipped && failed != failed_.end()))) {
      if (failed != failed_.end()) {
        now = not_run_again(std::move(failed->second.record), failed->second.task);
        failed_.erase(failed);
      } else {
        now.judgement = {};
        now.judgement.verdict = Verdict::skipped;
        now.judgement.reason = "interrupted while it ran";
      }
      return finish(index, now);
    }
    if (now.judgement.gate == kNoDevice && options_.devices != nullptr && options_.devices->left() == 0)
      now.judgement.gate = kDevicesLost;
    // A case that is run again has a process of its own, which ends anyway.
    if (failed == failed_.end() || now.judgement.gate != "memory") losses_.add(now);
    if (each_device_ && failed == failed_.end() && each_device_->begin(index, now)) return;
    if (failed == failed_.end()) {
      if (verdict != Verdict::fail && !is_repeated_crash(now, task)) return conclude(index, now);
      if (repeats_left_-- <= 0) return finish(index, not_run_again(std::move(now), task));
      const int runs = now.device == "cpu" ? kRuns : kRunsOnDevice;
      failed_.emplace(index, Failed{std::move(now), task, verdict == Verdict::fail ? runs - 1 : 1});
      again_.push_back(index);
      return;
    }
    Failed& first = failed->second;
    repeating_ += result.seconds;
    if (repeating_ > kRepeatSeconds) repeats_left_ = 0;
    const bool repeated = verdict == first.record.judgement.verdict;
    if (repeated && --first.left > 0) return again_.push_back(index);
    Unrepeated alone{index, std::move(first.record), std::move(first.task), verdict};
    failed_.erase(failed);
    if (repeated && verdict == Verdict::crash) ++repeated_crashes_[alone.record.kernel];
    if (repeated) return conclude(index, alone.record);
    // Stray accesses hit different memory each time, and may or may not end the process.
    if (alone.record.judgement.gate == "memory" && is_repeatable_failure(verdict)) {
      alone.record.judgement.reason += fmt::format("; run again alone: {}", name_of(verdict));
      return finish(index, alone.record);
    }
    // Other cases may still run in its process; the search there waits until they have ended.
    unrepeated_.push_back(std::move(alone));
  }

  /// Finishes a case; a failure with a configuration that a tuner chose is repeated with the other setting of its tuners.
  void conclude(std::size_t index, const Record& record) {
    if (interrupted() || !other_tuning_.begin(index, record, repeating_ <= kRepeatSeconds))
      return finish(index, record);
    again_.push_back(index);
  }

  void take_tuned_otherwise(std::size_t index, const CaseResult& result) {
    repeating_ += result.seconds;
    if (interrupted()) return finish(index, other_tuning_.give_up(index));
    if (const std::optional<Record> done = other_tuning_.take(index, result)) return finish(index, *done);
    again_.push_back(index);
  }

  /// Returns a failure as it was first seen. In a process that had run nothing before, it is a failure by
  /// itself.
  [[nodiscard]] Record not_run_again(Record record, const Task& task) const {
    std::string& reason = record.judgement.reason;
    if (const std::size_t before = history_.before(task).size(); before > 0)
      reason += fmt::format("{}{}{}{}", reason.empty() ? "" : "; ", kSeenAfter, before, kNotRunAgain);
    return record;
  }

  /// Returns true if the case is run again alone because its subject threw: after a call that damaged its process every later one
  /// may throw. A kernel that throws alone too, several times, is taken at its word.
  [[nodiscard]] bool is_repeated_crash(const Record& record, const Task& task) const {
    constexpr int kEnough = 3;
    const Judgement& j = record.judgement;
    if (j.verdict != Verdict::crash || j.gate != "exception" || record.spent.calls == 0) return false;
    const auto known = repeated_crashes_.find(record.kernel);
    return (known == repeated_crashes_.end() || known->second < kEnough) && !history_.before(task).empty();
  }

  /// Takes the result of a case that another device ran before.
  void take_other(const Task& task, const CaseResult& result) {
    const auto index = static_cast<std::size_t>(task.index);
    const Record record = record_of(task.c, table_, result);
    losses_.add(record);
    const std::optional<Record> done = each_device_->take(index, record);
    if (done) finish(index, *done);
  }

  /// A failure that a process of its own does not show.
  struct Unrepeated {
    std::size_t index;
    Record record;  ///< the first
    Task task;
    Verdict alone;
  };

  /// Either the cases that ran before it in its process cause it, or it is intermittent.
  void look_before(Unrepeated& failure) {
    Judgement& j = failure.record.judgement;
    std::vector<Case> before;
    for (const std::int64_t index : history_.before(failure.task))
      before.push_back(cases_[static_cast<std::size_t>(index)]);
    const bool can = !before.empty() && !interrupted();
    const auto count = before.size();
    ReplayOptions options;
    options.timeout = options_.timeout;
    options.stop = stop_;
    if (options_.fail_fast) options.budget = kReplayFast;
    if (options_.devices != nullptr) options.gpus = options_.devices->visible_as(failure.record.gpu);
    Replayed found;
    if (can) found = behind_known(failure, options);
    const bool looked = can && !found.repeated && replayed_[failure.record.kernel]++ < kReplayed;
    if (looked) {
      found = replay(std::move(before), failure.task.c, case_runner(table_), options);
      if (found.repeated) known_[failure.record.kernel].push_back(found.after);
    }
    if (found.repeated) {
      for (const Case& c : found.after) failure.record.after.push_back(format_case(c));
      j = found.result.judgement;
      j.reason = fmt::format(
          "{}{} other case(s) in one process, of the {} that ran before it; alone: {}. {}{}", kOnlyAfter,
          found.after.size(), count, name_of(failure.alone), kKeepsSomething, j.reason);
      return finish(failure.index, failure.record);
    }
    const Verdict first = std::exchange(j.verdict, Verdict::flaky);
    j.reason = fmt::format(
        "runs of the same case disagree: {}, then {} in a process of its own{}; the first: {}",
        name_of(first), name_of(failure.alone),
        looked ? ", and after the cases that ran before it too, as far as the time allowed"
        : can  ? fmt::format(
                     "; its cause was not looked for, because that was done for {} failures of the kernel",
                     kReplayed)
              : "",
        j.reason);
    finish(failure.index, failure.record);
  }

  /// Replays it after the cases that caused another failure of its kernel.
  Replayed behind_known(const Unrepeated& failure, const ReplayOptions& options) {
    Replayed out;
    for (const std::vector<Case>& after : known_[failure.record.kernel]) {
      if (tried_known_ > kTryKnown) break;
      const Clock::time_point begin = Clock::now();
      CaseResult result = run_behind(after, failure.task.c, case_runner(table_), options);
      tried_known_ += std::chrono::duration<double>(Clock::now() - begin).count();
      if (!is_repeatable_failure(result.judgement.verdict)) continue;
      out = {true, after, std::move(result)};
      break;
    }
    return out;
  }

  [[nodiscard]] bool interrupted() const { return stop_ && stop_(); }

  void finish(std::size_t index, const Record& record) {
    ++run_;
    finished_[index] = true;
    if (observer_.finished) observer_.finished(index, record);
  }

  /// A failure that is being run again: its first record.
  struct Failed {
    Record record;
    Task task;
    int left;  ///< runs left
  };

  std::span<const Case> cases_;
  const KernelTable& table_;
  const CampaignOptions& options_;
  const CampaignObserver& observer_;
  const std::function<bool()>& stop_;
  Clock::time_point begin_ = Clock::now();
  CompileOrder order_{cases_, table_, options_.compiling, options_.compilers};
  std::vector<bool> started_ = std::vector<bool>(cases_.size());
  std::vector<bool> finished_ = std::vector<bool>(cases_.size());
  std::optional<Clock::time_point> interrupted_since_;
  std::deque<std::size_t> again_;
  std::map<std::size_t, Failed> failed_;
  std::vector<Unrepeated> unrepeated_;
  OtherTuning other_tuning_;
  std::map<std::string, int> repeated_crashes_;  ///< by kernel: crashes that also happen alone
  std::map<std::string, int> replayed_;          ///< by kernel
  std::map<std::string, std::vector<std::vector<Case>>> known_;  ///< by kernel: cases that caused a failure
  double tried_known_ = 0.0;                                     ///< seconds spent on known_
  History history_;
  int repeats_left_ = kRepeated;
  double repeating_ = 0.0;  ///< seconds spent on running failures again
  std::int64_t run_ = 0;
  Losses losses_;
  std::optional<EachDevice> each_device_;
};

}  // namespace

CampaignResult run_campaign(std::span<const Case> cases, const KernelTable& table,
                            const CampaignOptions& options, const CampaignObserver& observer,
                            const std::function<bool()>& stop) {
  return Campaign(cases, table, options, observer, stop).run();
}

}  // namespace samestate
