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
  std::int64_t index = 0;    ///< the caller's number
  std::string text;          ///< what the runner is given
  std::int64_t subject = 0;  ///< what the job is about: a process serves one subject and ends with it
  bool fresh = false;        ///< in a process that has run none before, and runs none after it
  double work = 1.0;        ///< what it takes beside the others: the size of pieces for other ranks (HandOut)
  std::string device = {};  ///< HostDevice::id: on that one, as long as the pool has it; empty: on any
};

/// What came of a job.
struct JobResult {
  enum class Kind {
    answered,
    died,       ///< its process ended while it ran
    hung,       ///< it took longer than the timeout, and was killed
    unrepeated  ///< its process was lost while it ran, and alone neither it nor one beside it repeats that
  };
  Kind kind = Kind::answered;
  std::string text;                 ///< of the runner; of an unrepeated one: what it said alone
  std::string how;                  ///< the process was lost: signal, exit, timeout or broken
  std::string reason;               ///< the same for a person
  std::vector<std::string> beside;  ///< unrepeated: the texts of the jobs that ran beside it
  double seconds = 0.0;             ///< that it ran, where it was lost
  std::uint64_t process = 0;        ///< that it was given to, by a number of its own
  std::uint32_t order = 0;          ///< jobs were given in this order
  std::string device = {};          ///< HostDevice::id of that process; empty: it had none of its own
};

struct WorkerOptions {
  int workers = 1;        ///< processes
  double timeout = 60.0;  ///< seconds that one job may take before its process is killed; 0: no limit
  std::uint64_t memory =
      0;            ///< bytes of data that a process may hold before an allocation fails; 0: no limit
  int threads = 1;  ///< jobs at a time in a process, each on a thread of it
  int apart = 0;    ///< jobs that may be repeated alone at a time; 0: workers x threads
  /// Where a process dies that ran other jobs before this one, or is killed from outside, this one is repeated
  /// alone too: what damaged the process may have been one of those, or nothing that it did.
  bool confirm = false;
  /// GPUs that the processes are dealt over, each sees its own alone; none: they see what the caller sees. What runs on
  /// one that is lost is given to another, and where none is left to a process that sees none.
  Devices* devices = nullptr;
};

/// Jobs of a run that are under way beside the processes of the pool, which waits for them too.
class Elsewhere {
 public:
  virtual ~Elsewhere() = default;
  /// Readable when there is something to look at.
  [[nodiscard]] virtual int descriptor() const = 0;
  /// Looks at it. Whether jobs are still under way there.
  [[nodiscard]] virtual bool turn() = 0;
};

/// Callbacks in the calling process; `started` comes once for a job, however often it is run.
struct JobObserver {
  std::function<void(const Job&)> started;
  std::function<void(const Job&, JobResult)> finished;
  /// Once true the processes are killed, and `run` returns: what was under way has no `finished`.
  std::function<bool()> stop = {};
  Elsewhere* elsewhere = nullptr;
};

/// Gives a job, or none, to a process that served that subject last.
using NextJob = std::function<std::optional<Job>(std::int64_t served)>;

/// Processes that run jobs: a crash or a hang kills one of them, and is what came of the job that it was
/// given. A lost process is replaced, and so is one that an answer calls broken. Where jobs ran beside each
/// other in it, each of them is suspect: it is run again alone in a process of its own, so that the crash or
/// the hang is found where it belongs; where none of them repeats it, all are unrepeated. A process in which
/// a job has taken half of its timeout is given no more of them, so that a hang is alone when its time is
/// over and costs the timeout once. Processes are forked from the calling process when they are first given a
/// job (see WorkerProcess for what that asks of the caller).
class Pool {
 public:
  Pool(JobRunner run, const WorkerOptions& options);
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  static constexpr std::int64_t kNoSubject = -1;
  /// Asks `next` for a job whenever a process has a free thread, with the subject that it served last or
  /// kNoSubject, until it gives nothing and all that was given is finished. Throws Error where the runner did
  /// or where no process can be made.
  void run(const NextJob& next, const JobObserver& observer);

  /// One job; it hung, how is "interrupt", once `stop` says so.
  [[nodiscard]] JobResult run_one(Job job, std::function<bool()> stop = {});

  [[nodiscard]] const WorkerOptions& options() const { return options_; }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr int kNoSlot = -1;
  /// Since when a process was found standing still, and in how many looks.
  struct Stop {
    Clock::time_point since;
    int looks = 0;
  };
  /// Jobs that were in one process when it was lost, and what came of each of them alone.
  struct Suspicion {
    std::string how, reason;
    struct Member {
      Job job;
      std::optional<JobResult> alone;
      double seconds;
    };
    std::list<Member> members;
    bool closed = false, repeated = false;  ///< closed: the process is gone, so that no member is added
  };
  /// A member and the suspicion that holds it; neither for a job that is none.
  struct Suspect {
    std::shared_ptr<Suspicion> suspicion;
    Suspicion::Member* member = nullptr;
  };
  struct Flight {
    std::uint32_t id;
    Job job;
    Clock::time_point began;
    Suspect as;  ///< where it is repeated alone
    std::uint64_t process = 0;
    int device = Devices::kNone;
    std::optional<Clock::time_point> paused = {};  ///< since when its time does not count
    double most_paused = 0.0;                      ///< seconds that it may be so; 0: no limit
    Clock::duration excused = {};
  };
  /// A job that is to be given before further ones are asked for.
  struct Waiting {
    Job job;
    bool announced;  ///< `started` came for it
  };
  struct Worker {
    std::unique_ptr<WorkerProcess> process;
    std::int64_t subject = kNoSubject;
    int slot = kNoSlot;  ///< kNoSlot: it is given nothing more and leaves with its last job
    std::vector<Flight> flights = {};
    int device = Devices::kNone;
    std::uint64_t number = 0;  ///< of the process
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
  /// Of its age what counts against the timeout.
  [[nodiscard]] double counted(const Flight& flight) const;

  JobRunner run_;
  WorkerOptions options_;
  std::vector<Slot> slots_;
  std::list<Worker> workers_;
  std::deque<Suspect> suspects_;  ///< to be run alone
  std::deque<Waiting> waiting_;   ///< for a device, or come back from one that is lost
  std::uint32_t next_id_ = 0;
  std::uint64_t processes_ = 0;  ///< that were started
};

/// What `body` gives in a process of its own, which is killed after `timeout` seconds (0: never), or once `stop` says so: it
/// hung, how is "interrupt". Throws the Error of `body`.
[[nodiscard]] JobResult run_apart(const std::function<std::string()>& body, double timeout,
                                  std::function<bool()> stop = {});

}  // namespace samestate
