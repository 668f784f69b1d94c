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

/// Names the variant of a kernel that a call of this thread needs.
[[nodiscard]] std::string variant_of_call(const std::string& kernel);

/// Thrown where another call ended the process before this one was sent to it.
class EndedBefore {};

/// One conversation with a subject's process (docs/lookup/subjects.md), one call at a time. Several threads may call: the tensors of each lie
/// in a lane of the memory, and are written and read while the process runs another thread's call.
class Conversation {
 public:
  /// A call carries this beside its outcome, whatever came of it.
  struct Call {
    int lane = 0;             ///< of the caller alone while it calls
    std::int64_t number = 0;  ///< of the calls that the process was given, from 1
    std::string thrown = {};  ///< where it threw, or what where it did not say where; empty: it did not throw
  };

  /// Starts the process or connects to it, and reads what it declares. `traces`: of kernels that threw, which are said once; null:
  /// nobody calls one. Throws Error as load_subject does.
  Conversation(const std::string& spec, const SubjectPatience& patience, SaidOnce* traces, int lanes = 1);
  ~Conversation();
  Conversation(const Conversation&) = delete;
  Conversation& operator=(const Conversation&) = delete;

  /// False once nobody knows what it would say next.
  [[nodiscard]] bool good() const { return good_.load(); }

  /// Throws Trespass, ThrewElsewhere, EndedBefore, and runtime_error where it died or spoke nonsense, which is a crash of the case.
  /// Where the call touched memory outside its tensors the process is ended: its heap may be damaged too.
  Outcome run(EdgeCall& call, const std::string& kernel, Call& made);

  /// Returns true if it has made a call of that kind.
  [[nodiscard]] bool has_compiled(const std::string& variant) const;
  /// True if its process was started for it, so that another one can be.
  [[nodiscard]] bool is_child() const { return process_.is_child(); }
  Ready ready;

 private:
  /// The record of a call under way: what its process did for it.
  struct Work {
    Spent spent;
    std::string tuned_by;                     ///< the setting of its tuners
    std::vector<std::string> configurations;  ///< that they chose for it
  };

  Outcome called(EdgeCall& call, const std::string& kernel, Call& made, Work& work);
  Outcome answered(EdgeCall& call, const std::string& kernel, const std::vector<EdgePlace>& places,
                   Call& made, Work& work);
  /// The right to talk to the process; notes what it waited. Throws Unavailable where the run is given up meanwhile.
  std::unique_lock<std::timed_mutex> turn();
  /// After a call that left its tensors: that access may leave an array of its own next time, and damage the heap unseen.
  void stop_child();
  /// A subject that changed the object itself is one that nobody can go on with.
  void require_object();
  /// A gate calls a kernel that throws thousands of times, and a case that threw again, alone.
  void tell(const std::string& trace);
  [[noreturn]] void lose(const std::string& why, bool late = false, bool first = false);

  SubjectPatience patience_;
  SaidOnce* traces_;
  SharedMemory memory_;
  std::timed_mutex speaking_;  ///< of the process
  LineProcess process_;
  std::int64_t id_ = 0;
  std::atomic<bool> good_ = true;
  mutable std::mutex known_;        ///< of compiled_
  std::set<std::string> compiled_;  ///< kernels and what of them a call has compiled
};

}  // namespace samestate
