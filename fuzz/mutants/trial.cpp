#include "fuzz/mutants/trial.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <optional>

#include "fuzz/plan/plan.h"
#include "harness/processes/campaign.h"
#include "reference/error.h"

namespace samestate {
namespace {

constexpr double kSecondsOfMutant = 20.0;  // seconds of one core for the plan of one mutant at effort 1

/// The trials of a list; workers identify a trial by its index, which is the subject's number.
class Trials {
 public:
  Trials(std::span<const Mutant* const> list, const MutantOptions& options,
         const std::function<void(const MutantResult&)>& finished)
      : list_(list), options_(options), finished_(finished), trials_(list.size()) {
    for (std::int64_t i = 0; i < std::ssize(list); ++i) order_.push_back(i);
    // Trials that may use the whole time limit of a case begin first, at the same time as others.
    std::stable_partition(order_.begin(), order_.end(),
                          [&](std::int64_t i) { return list[static_cast<std::size_t>(i)]->hostile; });
  }

  /// Returns the next case for a worker: of the trial that it served last, or the first case of the next
  /// trial.
  std::optional<Task> next(std::int64_t served) {
    if (options_.stop && options_.stop()) return std::nullopt;
    if (served != Workers::kNoSubject && !at(served).ended) return task(served);
    while (begun_ < order_.size()) {
      const std::int64_t subject = order_[begun_++];
      begin(subject);
      if (at(subject).cases.empty()) {
        end(subject);
        continue;
      }
      return task(subject);
    }
    return std::nullopt;
  }

  void take(const Task& task, const CaseResult& finding) {
    Trial& trial = at(task.subject);
    MutantResult& r = trial.result;
    const Judgement& j = finding.judgement;
    ++r.cases;
    // A mutant with a wrong result does not hang: a timeout shows only that the machine is busy, and the next
    // case decides.
    const bool waited = j.verdict == Verdict::timeout && !r.mutant->hostile;
    r.killed = is_repeatable_failure(j.verdict) && !waited;
    r.ratio = r.killed ? j.ratio : std::max(r.ratio, j.ratio);
    if (r.killed) {
      r.gate = j.verdict == Verdict::fail ? j.gate : std::string(name_of(j.verdict));
      r.line = format_case(task.c);
      r.reason = j.reason;
    } else {
      if (r.cases == r.planned && !trial.seeded) seed(task.subject);
      if (r.cases < r.planned) return;
    }
    end(task.subject);
  }

  /// Runs in the worker's process.
  [[nodiscard]] CaseResult run(std::int64_t subject, const Case& c) const {
    return case_result(run_case(c, *trials_[static_cast<std::size_t>(subject)].table));
  }

  [[nodiscard]] std::vector<MutantResult> results() {
    std::vector<MutantResult> out;
    for (Trial& trial : trials_) {
      if (trial.ended) out.push_back(std::move(trial.result));
    }
    return out;
  }

 private:
  using Clock = std::chrono::steady_clock;
  struct Trial {
    std::optional<KernelTable> table;
    std::vector<Case> cases;
    bool seeded = false, ended = false;
    Clock::time_point began;
    MutantResult result;
  };

  Trial& at(std::int64_t subject) { return trials_[static_cast<std::size_t>(subject)]; }

  Task task(std::int64_t subject) {
    Trial& trial = at(subject);
    return {trial.result.cases, trial.cases[static_cast<std::size_t>(trial.result.cases)], subject};
  }

  void plan(std::int64_t subject, double effort) {
    Trial& trial = at(subject);
    PlanOptions plan;
    plan.seed = options_.seed;
    plan.effort = effort;
    plan.seconds = kSecondsOfMutant;
    plan.kernel = trial.result.mutant->kernel();
    trial.cases = plan_cases(*trial.table, plan);
    trial.result.planned = std::ssize(trial.cases);
  }

  /// Starts with the edge cases: every plan puts them first, and few mutants survive them.
  void begin(std::int64_t subject) {
    Trial& trial = at(subject);
    trial.began = Clock::now();
    trial.result.mutant = list_[static_cast<std::size_t>(subject)];
    trial.table.emplace(trial.result.mutant->table());
    plan(subject, 0.0);
  }

  void seed(std::int64_t subject) {
    at(subject).seeded = true;
    plan(subject, options_.effort);
  }

  void end(std::int64_t subject) {
    Trial& trial = at(subject);
    trial.ended = true;
    trial.cases = {};
    trial.result.seconds = std::chrono::duration<double>(Clock::now() - trial.began).count();
    if (finished_) finished_(trial.result);
  }

  std::span<const Mutant* const> list_;
  const MutantOptions& options_;
  const std::function<void(const MutantResult&)>& finished_;
  std::vector<Trial> trials_;
  std::vector<std::int64_t> order_;
  std::size_t begun_ = 0;
};

}  // namespace

double work_of(const Mutant& mutant, const MutantOptions& options) {
  // This was measured: the edge cases and covering set of a kernel take some ten seconds, half of
  // kSecondsOfMutant.
  constexpr double kFirstCases = 0.3;
  constexpr double kWholePlan = kSecondsOfMutant;
  if (mutant.hostile) return kFirstCases + options.timeout;
  return kFirstCases + (mutant.equivalent.empty() ? 0.0 : kWholePlan * (1.0 + options.effort));
}

MutantResult try_mutant(const Mutant& mutant, const MutantOptions& options) {
  const Mutant* const list[] = {&mutant};
  std::vector<MutantResult> results = try_mutants(list, options, 1, nullptr);
  if (results.empty()) throw Error(fmt::format("{}: stopped before it was killed", mutant.name));
  return std::move(results.front());
}

std::vector<MutantResult> try_mutants(std::span<const Mutant* const> list, const MutantOptions& options,
                                      int workers, const std::function<void(const MutantResult&)>& finished) {
  if (list.empty()) return {};
  Trials trials(list, options, finished);
  const int processes = std::min(workers, static_cast<int>(list.size()));
  Workers pool([&](std::int64_t subject, const Case& c) { return trials.run(subject, c); },
               {processes, options.timeout, options.memory});
  pool.run(
      [&](std::int64_t served) { return trials.next(served); },
      {{}, [&](const Task& task, const CaseResult& finding) { trials.take(task, finding); }, options.stop});
  return trials.results();
}

}  // namespace samestate
