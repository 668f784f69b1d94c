#pragma once

#include <cstdint>
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

/// One conversation with a subject's process (docs/subjects.md), one call at a time.
class Conversation {
 public:
  /// Starts the process or connects to it, and reads what it declares. `traces`: of kernels that threw, which are said once; null:
  /// nobody calls one. Throws Error as load_subject does.
  Conversation(const std::string& spec, const SubjectPatience& patience, SaidOnce* traces);
  ~Conversation();
  Conversation(const Conversation&) = delete;
  Conversation& operator=(const Conversation&) = delete;

  /// False once nobody knows what it would say next.
  [[nodiscard]] bool good() const { return process_.open(); }

  /// Throws Trespass, ThrewElsewhere, and runtime_error where it died or spoke nonsense, which is a crash of the case. Where the
  /// call touched memory outside its tensors the process is ended: its heap may be damaged too.
  Outcome run(EdgeCall& call, const std::string& kernel);

  /// Returns true if it has made a call of that kind.
  [[nodiscard]] bool has_compiled(const std::string& variant) const { return compiled_.contains(variant); }
  /// True if its process was started for it, so that another one can be.
  [[nodiscard]] bool is_child() const { return process_.is_child(); }
  /// Calls that it was given.
  [[nodiscard]] std::int64_t calls() const { return id_; }
  /// Where the last call threw, or what where it did not say where; empty: it did not throw.
  [[nodiscard]] const std::string& thrown() const { return thrown_; }

  Ready ready;

 private:
  Outcome answered(EdgeCall& call, const std::string& kernel);
  /// A subject that changed the object itself is one that nobody can go on with.
  void require_object();
  std::vector<EdgePlace> place_in_memory(const EdgeCall& call);
  /// A gate calls a kernel that throws thousands of times, and a case that threw again, alone.
  void tell(const std::string& trace);
  [[noreturn]] void lose(const std::string& why, bool late = false, bool first = false);

  SubjectPatience patience_;
  SaidOnce* traces_;
  SharedMemory memory_;
  LineProcess process_;
  std::int64_t id_ = 0;
  std::string thrown_;
  Spent spent_;                              ///< of the call under way
  std::string tuned_by_;                     ///< the setting of its tuners
  std::vector<std::string> configurations_;  ///< that they chose for it
  std::set<std::string> compiled_;           ///< kernels and what of them a call has compiled
};

}  // namespace samestate
