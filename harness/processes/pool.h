#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "harness/processes/devices.h"
#include "harness/processes/worker_process.h"

namespace samestate {

/// Something to be run in a process of the pool.
struct Job {
  std::int64_t index = 0;    ///< a number chosen by the caller
  std::string text;          ///< the input of the runner
  std::int64_t subject = 0;  ///< what the job is about: a process serves one subject, and ends when that is
                             ///< done
  bool fresh = false;        ///< runs in a process that has run no job before, and will run none after it
  double work = 1.0;  ///< its cost relative to the others, for the size of pieces for other ranks (HandOut)
  std::string device = {};  ///< HostDevice::id of the device to run on, as long as the pool has it; empty
                            ///< means any
};

/// The outcome of a job.
struct JobResult {
  enum class Kind {
    answered,
    died,       ///< its process ended while the job ran
    hung,       ///< it took longer than the timeout, and was killed
    unrepeated  ///< its process was lost while it ran, but neither it nor a concurrent job repeats that alone
  };
  Kind kind = Kind::answered;
  std::string text;    ///< the runner's answer; for an unrepeated job, its answer when it ran alone
  std::string how;     ///< how the process was lost: signal, exit, timeout or broken
  std::string reason;  ///< the same in words for a person
  std::vector<std::string>
      beside;                 ///< for an unrepeated job: the texts of the jobs that ran at the same time
  double seconds = 0.0;       ///< how long it ran, if its process was lost
  std::uint64_t process = 0;  ///< the number of the process that it was given to
  std::uint32_t order = 0;    ///< the order in which jobs were given to that process
  std::string device = {};    ///< HostDevice::id of that process; empty if it had no device of its own
};

struct WorkerOptions {
  int workers = 1;        ///< processes
  double timeout = 60.0;  ///< seconds that a job may take before its process is killed; 0 means no limit
  std::uint64_t memory =
      0;            ///< bytes of data that a process may hold before an allocation fails; 0 means no limit
  int threads = 1;  ///< jobs that run at once in a process, each on its own thread
  int apart = 0;    ///< jobs that may be repeated alone at once; 0 means workers x threads
  /// If a process that ran other jobs before this one dies, or is killed from outside, repeat this one alone
  /// too: one of the earlier jobs, or nothing in the process at all, may be responsible.
  bool confirm = false;
  /// GPUs over which the processes are distributed; each process sees only its own. If null, they see what
  /// the caller sees. A job on a lost device is given to another one and, if none is left, to a process that
  /// sees no device.
  Devices* devices = nullptr;
};

/// Jobs of a run that are running outside the processes of the pool, which waits for them too.
class Elsewhere {
 public:
  virtual ~Elsewhere() = default;
  /// A descriptor that becomes readable when there is something to handle.
  [[nodiscard]] virtual int descriptor() const = 0;
  /// Handles it. Returns true if jobs are still running there.
  [[nodiscard]] virtual bool turn() = 0;
};

/// Callbacks in the calling process; `started` is called once per job, however often it is run.
struct JobObserver {
  std::function<void(const Job&)> started;
  std::function<void(const Job&, JobResult)> finished;
  /// Once it returns true the processes are killed and `run` returns; jobs that were running get no
  /// `finished`.
  std::function<bool()> stop = {};
  Elsewhere* elsewhere = nullptr;
};

/// Returns the next job for a process that served that subject last, or nullopt if there is none.
using NextJob = std::function<std::optional<Job>(std::int64_t served)>;

/// Processes that run jobs. A crash or a hang kills only the process, and becomes the outcome of the job that
/// it was running. A lost process is replaced, and so is one whose answer says that it is broken. If several
/// jobs were running in a lost process, each is a suspect and is run again alone in a process of its own, so
/// that the crash or hang is attributed correctly; if none repeats it, all of them are unrepeated. A process
/// in which a job has used half of its timeout gets no further jobs, so that a hanging job is alone when its
/// time is over and costs only one timeout. Processes are forked from the calling process when they first get
/// a job (see WorkerProcess for the requirements on the caller).
class Pool {
 public:
  Pool(JobRunner run, const WorkerOptions& options);
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  static constexpr std::int64_t kNoSubject = -1;
  /// Whenever a process has a free thread, asks `next` for a job, passing the subject that the process served
  /// last, or kNoSubject. Returns when `next` gives nothing and all jobs are finished. Throws Error if the
  /// runner did, or if no process can be created.
  void run(const NextJob& next, const JobObserver& observer);

  /// Runs one job; it hung, with how = "interrupt", once `stop` returns true.
  [[nodiscard]] JobResult run_one(Job job, std::function<bool()> stop = {});

  [[nodiscard]] const WorkerOptions& options() const { return options_; }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr int kNoSlot = -1;
  /// Since when a process has been found stopped, and in how many checks.
  struct Stop {
    Clock::time_point since;
    int looks = 0;
  };
  /// The jobs that were in one process when it was lost, and the outcome of each when run alone.
  struct Suspicion {
    std::string how, reason;
    struct Member {
      Job job;
      std::optional<JobResult> alone;
      double seconds;
    };
    std::list<Member> members;
    bool closed = false, repeated = false;  ///< closed: the process is gone, so no member will be added
  };
  /// A member and the suspicion that it belongs to; both empty for a job that is not suspected.
  struct Suspect {
    std::shared_ptr<Suspicion> suspicion;
    Suspicion::Member* member = nullptr;
  };
  struct Flight {
    std::uint32_t id;
    Job job;
    Clock::time_point began;
    Suspect as;  ///< the suspect that it repeats alone
    std::uint64_t process = 0;
    int device = Devices::kNone;
    std::optional<Clock::time_point> paused = {};  ///< the time since which the clock of the job is paused
    double most_paused = 0.0;                      ///< seconds that it may be paused; 0 means no limit
    Clock::duration excused = {};
  };
  /// A job that is given out before new ones are requested.
  struct Waiting {
    Job job;
    bool announced;  ///< `started` was called for it
  };
  struct Worker {
    std::unique_ptr<WorkerProcess> process;
    std::int64_t subject = kNoSubject;
    int slot = kNoSlot;  ///< kNoSlot: it gets no further jobs, and ends with its last one
    std::vector<Flight> flights = {};
    int device = Devices::kNone;
    std::uint64_t number = 0;  ///< number of the process
    std::int64_t given = 0;
    std::shared_ptr<Suspicion> suspicion = nullptr;
    Stop stop = {};
  };
  struct Slot {
    Worker* worker = nullptr;
    std::int64_t served = kNoSubject;
    int device = Devices::kNone;
  };

  void fill(const NextJob& next, const JobObserver& observer);
  bool fill_slot(int number, const NextJob& next, const JobObserver& observer);
  std::optional<Waiting> next_for(const Slot& slot, const NextJob& next);
  [[nodiscard]] std::size_t most() const;
  [[nodiscard]] bool suits(const Job& job, const Slot& slot) const;
  [[nodiscard]] int device_of(const Job& job) const;
  void deal();
  [[nodiscard]] bool is_gone(const Worker& worker, const std::string& said);
  void give_back(Flight flight);
  [[nodiscard]] std::unique_ptr<WorkerProcess> process_for(std::int64_t subject, int threads,
                                                           int device) const;
  Worker& start(std::int64_t subject, int slot, int threads, int device);
  void give(Worker& worker, Job job, Suspect as, const JobObserver& observer, bool announced = false);
  void wait_for_messages(const JobObserver& observer);
  void collect(Worker& worker, const JobObserver& observer);
  void take(Worker& worker, Flight flight, WorkerMessage message, const JobObserver& observer);
  void look_at_the_clock(const JobObserver& observer);
  [[nodiscard]] static bool paused_too_long(const Flight& flight);
  [[nodiscard]] static int stopped_for_good(Worker& worker);
  void abandon();
  void lose(Worker& worker, JobResult::Kind kind, const WorkerEnd& end, const JobObserver& observer);
  void suspect(Worker& worker, Flight flight, const WorkerEnd& end);
  void deliver(Flight& flight, JobResult result, bool repeats, const JobObserver& observer);
  void settle(Suspicion& suspicion, const JobObserver& observer);
  void detach(Worker& worker);
  void let_go(const JobObserver& observer);
  [[nodiscard]] std::size_t in_flight() const;
  [[nodiscard]] double age(const Flight& flight) const;
  /// The part of its age that counts against the timeout.
  [[nodiscard]] double counted(const Flight& flight) const;

  JobRunner run_;
  WorkerOptions options_;
  std::vector<Slot> slots_;
  std::list<Worker> workers_;
  std::deque<Suspect> suspects_;  ///< jobs to be run alone
  std::deque<Waiting> waiting_;   ///< jobs for a certain device, or returned from one that was lost
  std::uint32_t next_id_ = 0;
  std::uint64_t processes_ = 0;  ///< processes started so far
};

/// The result of `body` in a process of its own, which is killed after `timeout` seconds (0: never), or once
/// `stop` returns true; it then hung, with how = "interrupt". Throws the Error of `body`.
[[nodiscard]] JobResult run_apart(const std::function<std::string()>& body, double timeout,
                                  std::function<bool()> stop = {});

}  // namespace samestate
