#include "cli/gate_run.h"

#include <fmt/format.h>

#include <utility>

#include "cli/devices.h"
#include "cli/interrupt.h"
#include "reports/records/summary.h"

namespace samestate::cli {

bool GateRun::stopped() const {
  return interrupted() || (options_.fail_fast && failed_) || !lines_.lost().empty();
}

void GateRun::run(std::span<const Case> cases, std::span<const std::int64_t> numbers) {
  progress_.add(std::ssize(cases));
  std::vector<bool> started(cases.size());
  CampaignObserver observer;
  observer.started = [&](std::size_t i, const Case& c) {
    started[i] = true;
    lines_.start(planned_record(c, table_), numbers[i]);
  };
  observer.finished = [&](std::size_t i, Record record) {
    // The command repeats the time limit that the line had here.
    if (record.judgement.verdict == Verdict::timeout) record.options += " --timeout " + options_.timeout;
    const bool failure = is_failure(record.judgement.verdict);
    if (failure) record.options += device_options(record, options_.campaign.devices);
    lines_.end(numbers[i], record);
    failed_ = failed_ || failure;
    progress_.compiled(record.spent.compile + record.spent.tune);
    progress_.step(record.judgement.ratio, failure);
    done_.emplace(numbers[i], std::move(record));
  };
  const CampaignResult ran =
      run_campaign(cases, table_, options_.campaign, observer, [this] { return stopped(); });
  left_ += ran.not_started;
  compared_ += ran.compared;
  for (const std::size_t i : ran.not_compiled) {
    const std::string kernel = planned_record(cases[i], table_).kernel;
    ++not_compiled_[kernel];
    started[i] = true;  // nobody waits for this case
  }
  for (std::size_t i = 0; i < cases.size(); ++i) {
    if (!started[i]) ++not_started_[planned_record(cases[i], table_).kernel];
  }
}

std::vector<std::string> GateRun::not_compiled() const {
  std::vector<std::string> out;
  for (const auto& [kernel, cases] : not_compiled_)
    out.push_back(
        fmt::format("{}: no variant was compiled after {:g} s, which left out {}; --compiles N compiles N, "
                    "however long that takes",
                    kernel, options_.campaign.compiling, counted(cases, "case")));
  return out;
}

void GateRun::run_rest(std::span<const Case> cases, std::span<const std::int64_t> numbers) {
  if (done_.empty()) return run(cases, numbers);
  std::vector<Case> left;
  std::vector<std::int64_t> places;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    if (done_.contains(numbers[i])) continue;
    left.push_back(cases[i]);
    places.push_back(numbers[i]);
  }
  run(left, places);
}

void GateRun::take(std::span<const Record> records, std::span<const std::int64_t> numbers) {
  for (std::size_t i = 0; i < records.size(); ++i) {
    failed_ = failed_ || is_failure(records[i].judgement.verdict);
    done_.emplace(numbers[i], records[i]);
  }
}

void GateRun::cover_pairs(const Plan& plan, const GatePlanOptions& options, std::int64_t next) {
  for (int round = 0; round < kCoverAgain && !stopped(); ++round) {
    const std::vector<Case> cases = further_cases(judged_of(plan, records()), options, table_, round);
    if (cases.empty()) return;
    std::vector<std::int64_t> numbers(cases.size());
    for (std::int64_t& number : numbers) number = next++;
    run(cases, numbers);
  }
}

std::vector<Record> GateRun::records() const {
  std::vector<Record> out;
  for (const auto& [number, record] : done_) out.push_back(record);
  return out;
}

std::vector<std::int64_t> GateRun::numbers() const {
  std::vector<std::int64_t> out;
  for (const auto& [number, record] : done_) out.push_back(number);
  return out;
}

}  // namespace samestate::cli
