#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "harness/cases/case_line.h"
#include "harness/processes/hand_out.h"
#include "harness/processes/pool.h"
#include "harness/records/case_result.h"

namespace samestate {

/// A case to run, and its number.
struct Task {
  std::int64_t index = 0;
  Case c;
  std::int64_t subject = 0;  ///< what the case is about: a process serves one subject, and ends when that is
                             ///< done
  bool fresh = false;        ///< runs in a process of its own, as a new `samestate repro` would
  /// For a finished task: its process, and the order in which tasks were given to it (History).
  std::uint64_t process = 0;
  std::uint32_t order = 0;
  double work = 1.0;        ///< Job::work
  std::string device = {};  ///< Job::device
  /// The tuner setting that subjects obey in this run through SAMESTATE_AUTOTUNE, for a `fresh` task; empty
  /// means that of the caller.
  std::string autotune = {};
};

/// The variable that tells a subject how its tuners work: first, cached or full (docs/lookup/subjects.md).
inline constexpr const char* kAutotuneVariable = "SAMESTATE_AUTOTUNE";

/// Runs a case in a worker, for one of possibly several subjects.
using CaseRunner = std::function<CaseResult(const Case&)>;
using SubjectRunner = std::function<CaseResult(std::int64_t subject, const Case&)>;

/// Callbacks in the calling process.
struct WorkerObserver {
  std::function<void(const Task&)> started;
  std::function<void(const Task&, const CaseResult&)> finished;
  std::function<bool()> stop = {};  ///< JobObserver::stop
};

/// The other places where a run of workers has its cases run, and what they need to know about it; see
/// HandOutOptions.
struct OtherRanks {
  HandOut* ranks = nullptr;
  double work = PieceSizes::kUnknown;
  std::function<bool()> ending = {};
  std::function<bool(const Task&)> again = {};
};

/// Runs cases on a Pool: a crash or a hang in a kernel becomes the verdict crash or timeout of the case that
/// causes it, and flaky if the case does not repeat it alone (except that a case that fails alone is a fail).
/// A process is also replaced after a case with the verdict crash, because a kernel that threw or broke its
/// device context may have left the heap and the device in a bad state.
class Workers {
 public:
  Workers(CaseRunner run, const WorkerOptions& options);
  Workers(SubjectRunner run, const WorkerOptions& options);

  /// Whenever a worker is free, asks `next` for a task, passing the subject that the worker served last, or
  /// kNoSubject. Returns when `next` gives nothing and all tasks are finished. Throws Error for an invalid
  /// case, or if no process can be created.
  void run(const std::function<std::optional<Task>(std::int64_t served)>& next,
           const WorkerObserver& observer, const OtherRanks& others = {});
  static constexpr std::int64_t kNoSubject = Pool::kNoSubject;

  /// Runs one case; `device` is Job::device.
  [[nodiscard]] CaseResult run_one(const Case& c, const std::string& device = {});
  /// Runs one case in a process that has run none before, as a new `samestate repro` would.
  [[nodiscard]] CaseResult run_fresh(const Case& c, const std::string& device = {});

 private:
  Pool pool_;
};

/// How a process handles a case line: the runner that Workers pass to their pool, and serve_rank uses.
[[nodiscard]] JobRunner job_runner(SubjectRunner run);
[[nodiscard]] JobRunner job_runner(CaseRunner run);

/// The judgement of a job that did not simply return: crash, timeout or flaky, with the reason; `said` is the
/// verdict of an unrepeated job when it ran alone. nullopt for a job that was answered.
[[nodiscard]] std::optional<Judgement> judgement_of_loss(const JobResult& done, Verdict said = Verdict::pass);

/// Returns the judgement's message about a device that was not found or that failed (Answer::misses); empty
/// if there is none.
[[nodiscard]] std::string missed_device(const Judgement& judgement);

/// Why a process in which a case was judged like this must not be used again; empty if it may be.
[[nodiscard]] std::string broken_by(const Judgement& judgement, const Spent& spent = {});

}  // namespace samestate
