#include "harness/processes/workers.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "harness/records/record.h"

namespace samestate {
namespace {

Answer answer_of(const CaseResult& result) {
  return {result_text(result), broken_by(result.judgement, result.spent), missed_device(result.judgement)};
}

CaseResult result_of(const JobResult& done) {
  CaseResult result;
  const bool said = done.kind == JobResult::Kind::answered || done.kind == JobResult::Kind::unrepeated;
  if (said) result = parse_result(done.text);
  if (std::optional<Judgement> lost = judgement_of_loss(done, result.judgement.verdict)) {
    if (!said || result.judgement.verdict != Verdict::fail) result.judgement = std::move(*lost);
    if (!said) result.seconds = done.seconds;
  }
  result.gpu = done.device;
  return result;
}

}  // namespace

std::optional<Judgement> judgement_of_loss(const JobResult& done, Verdict said) {
  Judgement j;
  j.gate = done.how;
  j.reason = done.reason;
  switch (done.kind) {
    case JobResult::Kind::answered:
      return std::nullopt;
    case JobResult::Kind::died:
      j.verdict = Verdict::crash;
      return j;
    case JobResult::Kind::hung:
      j.verdict = Verdict::timeout;
      j.gate.clear();
      return j;
    case JobResult::Kind::unrepeated:
      j.verdict = Verdict::flaky;
      break;
  }
  if (done.beside.empty()) {
    j.reason += fmt::format(
        "; alone in a process: {}, so the cases before it in that process may be the cause", name_of(said));
    return j;
  }
  constexpr std::size_t kNamed = 2;
  std::string beside;
  for (std::size_t i = 0; i < std::min(kNamed, done.beside.size()); ++i) {
    const std::string& text = done.beside[i];
    beside += fmt::format("{}'{}'", i > 0 ? ", " : "", text.substr(0, text.find('\t')));
  }
  if (done.beside.size() > kNamed) beside += fmt::format(" and {} more", done.beside.size() - kNamed);
  j.reason += fmt::format(
      "; with {} under way on other threads; alone in a process: {}, and none of them "
      "repeats it",
      beside, name_of(said));
  return j;
}

std::string broken_by(const Judgement& judgement, const Spent& spent) {
  // The process that threw is another one, which goes on; this one is unaffected.
  const bool elsewhere = spent.calls > 0 && !spent.lost && judgement.gate != "device";
  const bool broken = (judgement.verdict == Verdict::crash && !elsewhere) || judgement.gate == "device";
  return !broken ? "" : judgement.reason.empty() ? "a crash" : judgement.reason;
}

std::string missed_device(const Judgement& judgement) {
  const bool thrown = judgement.verdict == Verdict::crash && judgement.gate == "exception";
  const bool missed = judgement.gate == kNoDevice || judgement.gate == "device" || thrown;
  return !missed ? "" : judgement.reason.empty() ? "no reason given" : judgement.reason;
}

JobRunner job_runner(SubjectRunner run) {
  return [run = std::move(run)](std::int64_t subject, const std::string& text) {
    // The setting of tuners follows the line: this process runs nothing after such a task (Task::fresh).
    const std::size_t tab = std::min(text.find('\t'), text.size());
    if (tab < text.size()) ::setenv(kAutotuneVariable, text.c_str() + tab + 1, 1);
    return answer_of(run(subject, parse_case(text.substr(0, tab))));
  };
}

JobRunner job_runner(CaseRunner run) {
  return job_runner([run = std::move(run)](std::int64_t, const Case& c) { return run(c); });
}

Workers::Workers(CaseRunner run, const WorkerOptions& options) : pool_(job_runner(std::move(run)), options) {}

Workers::Workers(SubjectRunner run, const WorkerOptions& options)
    : pool_(job_runner(std::move(run)), options) {}

void Workers::run(const std::function<std::optional<Task>(std::int64_t served)>& next,
                  const WorkerObserver& observer, const OtherRanks& others) {
  std::map<std::int64_t, Task> open;
  std::int64_t number = 0;
  JobObserver jobs;
  jobs.stop = observer.stop;
  if (observer.started) jobs.started = [&](const Job& job) { observer.started(open.at(job.index)); };
  jobs.finished = [&](const Job& job, const JobResult& done) {
    auto node = open.extract(job.index);
    node.mapped().process = done.process;
    node.mapped().order = done.order;
    if (observer.finished) observer.finished(node.mapped(), result_of(done));
  };
  HandOutOptions options{others.work, others.ending, {}};
  if (others.again) {
    options.again = [&](const Job& job) {
      const bool again = others.again(open.at(job.index));
      if (!again) open.erase(job.index);
      return again;
    };
  }
  const NextJob next_job = [&](std::int64_t served) -> std::optional<Job> {
    std::optional<Task> task = next(served);
    if (!task) return std::nullopt;
    std::string text = format_case(task->c);
    if (!task->autotune.empty()) text += '\t' + task->autotune;
    Job job{number++, std::move(text), task->subject, task->fresh, task->work, task->device};
    open.emplace(job.index, std::move(*task));
    return job;
  };
  run_on(others.ranks, pool_, next_job, jobs, options);
}

CaseResult Workers::run_one(const Case& c, const std::string& device) {
  return result_of(pool_.run_one({0, format_case(c), 0, false, 1.0, device}));
}

CaseResult Workers::run_fresh(const Case& c, const std::string& device) {
  return result_of(pool_.run_one({0, format_case(c), 0, true, 1.0, device}));
}

}  // namespace samestate
