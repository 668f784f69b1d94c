#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "fuzz/case_line.h"
#include "fuzz/search/finding.h"

namespace samestate {

/// A case to be run and its number.
struct Task {
  std::int64_t index = 0;
  Case c;
};

/// What a worker does with a case.
using CaseRunner = std::function<Finding(const Case&)>;

struct WorkerOptions {
  int workers = 1;
  double timeout = 60.0;  ///< seconds that one case may take before its worker is killed
};

/// Callbacks in the calling process.
struct WorkerObserver {
  std::function<void(const Task&)> started;
  std::function<void(const Task&, const Finding&)> finished;
};

/// Processes that run cases: a crash or a hang in a kernel kills one of them and becomes the verdict crash or
/// timeout of the case that it was given. A killed worker is replaced, and so is one whose case had the
/// verdict crash, for a kernel that threw or broke its device context leaves neither heap nor device as they
/// were. They are forked from the calling process, which must have no other threads and must not have called
/// a GPU; they die with it. What a kernel prints to stdout goes to stderr.
class Workers {
 public:
  Workers(CaseRunner run, const WorkerOptions& options);
  ~Workers();
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  /// Runs what `next` gives until it gives nothing and all that was given is finished. Throws Error where a
  /// case is no case, or where no process can be made.
  void run(const std::function<std::optional<Task>()>& next, const WorkerObserver& observer);

  /// One case.
  [[nodiscard]] Finding run_one(const Case& c);

 private:
  using Clock = std::chrono::steady_clock;
  struct Worker {
    pid_t pid = -1;
    int socket = -1;
    std::string received;
    std::optional<Task> task;
    Clock::time_point began;
  };
  void start(Worker& worker);
  /// How a worker ended: the kind of it and the reason, of a judgement.
  struct End {
    std::string gate, reason;
  };
  End bury(Worker& worker, bool kill_first);
  void give(Worker& worker, Task task, const WorkerObserver& observer);
  void collect(Worker& worker, const WorkerObserver& observer);
  void finish(Worker& worker, const Finding& finding, const WorkerObserver& observer);
  [[nodiscard]] Finding lost(const Worker& worker, Verdict verdict, End end) const;

  CaseRunner run_;
  WorkerOptions options_;
  std::vector<Worker> workers_;
};

}  // namespace samestate
