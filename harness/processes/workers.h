#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "harness/cases/case_line.h"
#include "harness/records/case_result.h"

namespace samestate {

/// A case to be run and its number.
struct Task {
  std::int64_t index = 0;
  Case c;
  std::int64_t subject = 0;  ///< what the case is about: a process serves one subject and ends with it
};

/// What a worker does with a case; of a subject where there are several.
using CaseRunner = std::function<CaseResult(const Case&)>;
using SubjectRunner = std::function<CaseResult(std::int64_t subject, const Case&)>;

struct WorkerOptions {
  int workers = 1;
  double timeout = 60.0;     ///< seconds that one case may take before its worker is killed
  std::uint64_t memory = 0;  ///< bytes of data that a worker may hold before an allocation fails; 0: no limit
};

/// Callbacks in the calling process.
struct WorkerObserver {
  std::function<void(const Task&)> started;
  std::function<void(const Task&, const CaseResult&)> finished;
};

/// Processes that run cases: a crash or a hang in a kernel kills one of them and becomes the verdict crash or
/// timeout of the case that it was given. A killed worker is replaced, and so is one whose case had the
/// verdict crash, for a kernel that threw or broke its device context leaves neither heap nor device as they
/// were. They are forked from the calling process when they are first given a case; it must have no other
/// threads and must not have called a GPU, and they die with it. What a kernel prints to stdout goes to
/// stderr. A crash leaves no core: `repro` repeats it.
class Workers {
 public:
  Workers(CaseRunner run, const WorkerOptions& options);
  Workers(SubjectRunner run, const WorkerOptions& options);
  ~Workers();
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  /// Asks `next` for a task whenever a worker is free, with the subject that it served last or kNoSubject,
  /// until it has given nothing for each of them and all that was given is finished. Throws Error where a
  /// case is no case, or where no process can be made.
  void run(const std::function<std::optional<Task>(std::int64_t served)>& next,
           const WorkerObserver& observer);
  static constexpr std::int64_t kNoSubject = -1;

  /// One case.
  [[nodiscard]] CaseResult run_one(const Case& c);
  /// One case in a process that has run none before: what a fresh `samestate repro` sees.
  [[nodiscard]] CaseResult run_fresh(const Case& c);

 private:
  using Clock = std::chrono::steady_clock;
  struct Worker {
    pid_t pid = -1;
    int socket = -1;
    std::int64_t subject = kNoSubject;
    std::string received;
    std::optional<Task> task;
    Clock::time_point began;
  };
  void start(Worker& worker, std::int64_t subject);
  /// How a worker ended: the kind of it and the reason, of a judgement.
  struct End {
    std::string gate, reason;
  };
  End bury(Worker& worker, bool kill_first);
  void give(Worker& worker, Task task, const WorkerObserver& observer);
  void collect(Worker& worker, const WorkerObserver& observer);
  void finish(Worker& worker, const CaseResult& finding, const WorkerObserver& observer);
  [[nodiscard]] CaseResult lost(const Worker& worker, Verdict verdict, End end) const;

  SubjectRunner run_;
  WorkerOptions options_;
  std::vector<Worker> workers_;
};

}  // namespace samestate
