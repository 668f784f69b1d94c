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

/// A case to be run and its number.
struct Task {
  std::int64_t index = 0;
  Case c;
  std::int64_t subject = 0;  ///< what the case is about: a process serves one subject and ends with it
  bool fresh = false;        ///< in a process of its own: what a fresh `samestate repro` sees
  /// Of a finished one: its process, and the order in which tasks were given (History).
  std::uint64_t process = 0;
  std::uint32_t order = 0;
  double work = 1.0;        ///< Job::work
  std::string device = {};  ///< Job::device
  /// The setting that tuners of a subject obey in this run, by SAMESTATE_AUTOTUNE, of one that is `fresh`; empty: that of the
  /// caller.
  std::string autotune = {};
};

/// The variable by which a subject learns what its tuners do: first, cached or full (docs/lookup/subjects.md).
inline constexpr const char* kAutotuneVariable = "SAMESTATE_AUTOTUNE";

/// What a worker does with a case; of a subject where there are several.
using CaseRunner = std::function<CaseResult(const Case&)>;
using SubjectRunner = std::function<CaseResult(std::int64_t subject, const Case&)>;

/// Callbacks in the calling process.
struct WorkerObserver {
  std::function<void(const Task&)> started;
  std::function<void(const Task&, const CaseResult&)> finished;
  std::function<bool()> stop = {};  ///< JobObserver::stop
};

/// Where else a run of workers has its cases, and what those places must know of it: see HandOutOptions.
struct OtherRanks {
  HandOut* ranks = nullptr;
  double work = PieceSizes::kUnknown;
  std::function<bool()> ending = {};
  std::function<bool(const Task&)> again = {};
};

/// Cases on a Pool: a crash or a hang in a kernel becomes the verdict crash or timeout of the case that it
/// comes from, and flaky where the case does not repeat it alone (but for one that fails alone, which is a
/// fail). A process is replaced too where a case had the verdict crash, for a kernel that threw or broke its
/// device context leaves neither heap nor device as they were.
class Workers {
 public:
  Workers(CaseRunner run, const WorkerOptions& options);
  Workers(SubjectRunner run, const WorkerOptions& options);

  /// Asks `next` for a task whenever a worker is free, with the subject that it served last or kNoSubject,
  /// until it gives nothing and all that was given is finished. Throws Error where a case is no case, or
  /// where no process can be made.
  void run(const std::function<std::optional<Task>(std::int64_t served)>& next,
           const WorkerObserver& observer, const OtherRanks& others = {});
  static constexpr std::int64_t kNoSubject = Pool::kNoSubject;

  /// One case; `device`: Job::device.
  [[nodiscard]] CaseResult run_one(const Case& c, const std::string& device = {});
  /// One case in a process that has run none before: what a fresh `samestate repro` sees.
  [[nodiscard]] CaseResult run_fresh(const Case& c, const std::string& device = {});

 private:
  Pool pool_;
};

/// What a process makes of a case line: the runner that Workers give their pool, and serve_rank.
[[nodiscard]] JobRunner job_runner(SubjectRunner run);
[[nodiscard]] JobRunner job_runner(CaseRunner run);

/// The judgement of a job that did not simply return: crash, timeout or flaky, with the reason; `said` is the
/// verdict of what an unrepeated one returned alone. Empty for one that was answered.
[[nodiscard]] std::optional<Judgement> judgement_of_loss(const JobResult& done, Verdict said = Verdict::pass);

/// What the judgement says of a device that was not found or that failed (Answer::misses); empty: nothing.
[[nodiscard]] std::string missed_device(const Judgement& judgement);

/// Why a process in which a case was judged so is not to be used again; empty: it is.
[[nodiscard]] std::string broken_by(const Judgement& judgement, const Spent& spent = {});

}  // namespace samestate
