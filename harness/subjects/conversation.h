#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "harness/processes/line_process.h"
#include "harness/records/spent.h"
#include "harness/subjects/edge.h"
#include "harness/subjects/said_once.h"
#include "harness/subjects/shared_memory.h"
#include "harness/subjects/subject.h"

namespace samestate {

/// The name of the kernel variant that a call on this thread needs.
[[nodiscard]] std::string variant_of_call(const std::string& kernel);

/// Thrown if another call ended the process before this one was sent to it.
class EndedBefore {};

/// One conversation with a subject's process (docs/lookup/subjects.md), one call at a time. Several threads may
/// call: the tensors of each are in a lane of the shared memory, and are written and read while the process
/// runs another thread's call.
class Conversation {
 public:
  /// Data about a call besides its outcome, whatever that is.
  struct Call {
    int lane = 0;             ///< used only by the caller while it calls
    std::int64_t number = 0;  ///< the number of the call in its process, from 1
    std::string thrown = {};  ///< where it threw, or what if the place is unknown; else empty
  };

  /// Starts the process or connects to it, and reads its declaration. `traces` records the stack traces of
  /// kernels that threw, which are printed once; it is null if no kernel is called. Throws Error as
  /// load_subject does.
  Conversation(const std::string& spec, const SubjectPatience& patience, SaidOnce* traces, int lanes = 1);
  ~Conversation();
  Conversation(const Conversation&) = delete;
  Conversation& operator=(const Conversation&) = delete;

  /// False once the state of the conversation is unknown.
  [[nodiscard]] bool good() const { return good_.load(); }

  /// Throws Trespass, ThrewElsewhere, EndedBefore, and runtime_error if the process died or answered
  /// nonsense, which is a crash of the case. If the call touched memory outside its tensors the process is
  /// ended, since its heap may be damaged.
  Outcome run(EdgeCall& call, const std::string& kernel, Call& made);

  /// True if it has made a call with that variant.
  [[nodiscard]] bool has_compiled(const std::string& variant) const;
  /// True if its process was started for it, so that it can be restarted.
  [[nodiscard]] bool is_child() const { return process_.is_child(); }
  Ready ready;

 private:
  /// The work of the process for the current call.
  struct Work {
    Spent spent;
    std::string tuned_by;                     ///< the setting of its tuners
    std::vector<std::string> configurations;  ///< the configurations that they chose for it
  };

  Outcome called(EdgeCall& call, const std::string& kernel, Call& made, Work& work);
  Outcome answered(EdgeCall& call, const std::string& kernel, const std::vector<EdgePlace>& places,
                   Call& made, Work& work);
  /// The right to talk to the process; records how long it waited. Throws Unavailable if the run is abandoned
  /// meanwhile.
  std::unique_lock<std::timed_mutex> turn();
  /// Used after a call that accessed memory outside its tensors: the next time such an access may hit an
  /// array of its own and damage the heap unnoticed.
  void stop_child();
  /// If the subject changed the shared memory object itself, the conversation cannot continue.
  void require_object();
  /// Prints a trace once: a gate calls a kernel that throws thousands of times, and repeats cases that threw.
  void tell(const std::string& trace);
  [[noreturn]] void lose(const std::string& why, bool late = false, bool first = false);

  SubjectPatience patience_;
  SaidOnce* traces_;
  SharedMemory memory_;
  std::timed_mutex speaking_;  ///< guards the process
  LineProcess process_;
  std::int64_t id_ = 0;
  std::atomic<bool> good_ = true;
  mutable std::mutex known_;        ///< guards compiled_
  std::set<std::string> compiled_;  ///< kernels with the variants that a call has compiled
};

}  // namespace samestate
