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

/// The result of a job in the process that ran it.
struct Answer {
  std::string text;  ///< any bytes
  /// Why the process cannot be used any more: the job left the heap or the device in an unknown state. Empty
  /// if it can.
  std::string broken;
  /// The job's message about a device that it did not find or that failed: the device of its process may be
  /// gone. Empty if there is no such message.
  std::string misses = {};
};

/// Processes the text of a job; `subject` distinguishes several subjects. Called from as many threads at once
/// as the process has.
using JobRunner = std::function<Answer(std::int64_t subject, const std::string& text)>;

/// A message of a process about one job.
struct WorkerMessage {
  enum class Kind : std::uint32_t {
    answer,
    error,
    internal_error,
    pauses,  ///< the clock of the job stops here (ExcusedTime; the text is its limit in seconds, or empty)
    goes_on  ///< and continues here
  };
  std::uint32_t id = 0;
  Kind kind = Kind::answer;
  Answer answer;  ///< for an error: its text
};

/// How a process ended: the kind (signal or exit), and the reason as a judgement states it.
struct WorkerEnd {
  std::string how, reason;
  bool from_outside =
      false;  ///< by SIGKILL, which no fault raises: the machine ran out of memory, or someone killed it
};

/// A child of the calling process that answers jobs over a socket, on `threads` threads. It dies with its
/// parent, survives SIGINT, SIGTERM and SIGHUP, and leaves no core file; what it started ends with it
/// (orphans.h). It inherits no descriptor of its parent except stderr, to which its stdout also goes; its
/// stdin is empty. The caller must have no other threads and must not have used a GPU.
class WorkerProcess {
 public:
  /// From now on the output of processes goes to the end of that file (Printed), and its last line is quoted
  /// with a crash; if empty, it goes to stderr. The judge's own messages in such a process (own_stderr) still
  /// go to stderr.
  static void log_to(std::string path);

  /// `memory` is the number of bytes of data that it may hold before an allocation fails; 0 means no limit.
  /// `gpus` is its CUDA_VISIBLE_DEVICES, which kernels, plugins and the programs that it starts read; nullopt
  /// means that of the caller. Throws Error if no process can be created.
  WorkerProcess(const JobRunner& run, std::int64_t subject, int threads, std::uint64_t memory,
                const std::optional<std::string>& gpus = {});
  /// Ends it, by force if it does not end by itself.
  ~WorkerProcess();
  WorkerProcess(const WorkerProcess&) = delete;
  WorkerProcess& operator=(const WorkerProcess&) = delete;

  [[nodiscard]] int socket() const { return socket_; }
  /// The descriptor of its output, to be polled and read while it runs; -1 if the output goes to stderr.
  [[nodiscard]] int printed() const { return printed_.reader(); }
  void take_printed() { printed_.take(); }
  /// Returns false if the process is gone.
  [[nodiscard]] bool send(std::uint32_t id, std::string_view text);
  /// Reads what is available and appends the complete messages; returns false if the process is gone.
  [[nodiscard]] bool receive(std::vector<WorkerMessage>& messages);
  /// The signal that has stopped it (for example SIGSTOP); 0 if it is not stopped.
  [[nodiscard]] int stopped() const;
  /// Waits until it has ended. Kills it first if `kill`, or if it does not end when told that there is
  /// nothing more. The result is empty if this was done before.
  WorkerEnd end(bool kill);

 private:
  pid_t pid_ = -1;
  int socket_ = -1;
  std::string received_;
  Printed printed_;
  bool damaged_ = false;  ///< something other than a message arrived
  char* note_ =
      nullptr;  ///< shared with it: what its kernel did to tensors before a fault ended it (note_faults), and
                ///< whether it exited by itself
};

}  // namespace samestate
