#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "harness/processes/printed.h"

namespace samestate {

/// What a job gives back in the process that ran it.
struct Answer {
  std::string text;  ///< any bytes
  /// Why the process is of no more use: what ran in it left heap or device in an unknown state. Empty: it
  /// goes on.
  std::string broken;
  /// What ran said of a device that it did not find, or that failed: that of its process may be gone. Empty: nothing.
  std::string misses = {};
};

/// What a process does with the text of a job; of a subject where there are several. Called by as many
/// threads at a time as the process has.
using JobRunner = std::function<Answer(std::int64_t subject, const std::string& text)>;

/// What a process says of one job.
struct WorkerMessage {
  enum class Kind : std::uint32_t {
    answer,
    error,
    internal_error,
    pauses,  ///< the job's time does not count from here on (ExcusedTime; the text is its limit in seconds, or empty),
    goes_on  ///< and does again
  };
  std::uint32_t id = 0;
  Kind kind = Kind::answer;
  Answer answer;  ///< of an error: its text
};

/// How a process ended: the kind of it, signal or exit, and the reason, as of a judgement.
struct WorkerEnd {
  std::string how, reason;
  bool from_outside =
      false;  ///< by SIGKILL, which no fault raises: memory ran out, or somebody wanted its end
};

/// A child of the calling process that answers jobs over a socket, on `threads` threads. It dies with its
/// parent, outlives SIGINT, SIGTERM and SIGHUP, and leaves no core; what it started ends with it (orphans.h). It owns no descriptor of its parent's but stderr, to which
/// what it prints to stdout goes too; it reads nothing from stdin. The caller must have no other threads and must not have
/// called a GPU.
class WorkerProcess {
 public:
  /// From now on what processes print goes to the end of that file (Printed), and its last line stands with a crash; empty: to
  /// stderr. What the judge itself says in one (own_stderr) goes to stderr all the same.
  static void log_to(std::string path);

  /// `memory`: bytes of data that it may hold before an allocation fails; 0: no limit. `gpus`: its CUDA_VISIBLE_DEVICES,
  /// which kernels, plugins and the programs that it starts read; none: that of the caller. Throws Error where no
  /// process can be made.
  WorkerProcess(const JobRunner& run, std::int64_t subject, int threads, std::uint64_t memory,
                const std::optional<std::string>& gpus = {});
  /// Ends it, by force where it does not end by itself.
  ~WorkerProcess();
  WorkerProcess(const WorkerProcess&) = delete;
  WorkerProcess& operator=(const WorkerProcess&) = delete;

  [[nodiscard]] int socket() const { return socket_; }
  /// What it prints, to be polled and taken while it runs; -1: that goes to stderr.
  [[nodiscard]] int printed() const { return printed_.reader(); }
  void take_printed() { printed_.take(); }
  /// False where the process is gone.
  [[nodiscard]] bool send(std::uint32_t id, std::string_view text);
  /// Reads what is there and appends the whole messages; false where the process is gone.
  [[nodiscard]] bool receive(std::vector<WorkerMessage>& messages);
  /// The signal that it stands still by (SIGSTOP, say); 0: it does not.
  [[nodiscard]] int stopped() const;
  /// Waits until it has ended, and kills it first where `kill` or where it does not end when told that there
  /// is nothing more. Empty where that was done before.
  WorkerEnd end(bool kill);

 private:
  pid_t pid_ = -1;
  int socket_ = -1;
  std::string received_;
  Printed printed_;
  bool damaged_ = false;  ///< something else than a message came
  char* note_ =
      nullptr;  ///< shared with it: what its kernel did to tensors before a fault ended it (note_faults), and whether it left by itself
};

}  // namespace samestate
