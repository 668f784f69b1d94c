#pragma once

#include <functional>
#include <string>
#include <vector>

#include "harness/run/plugin.h"
#include "harness/subjects/declaration.h"
#include "harness/subjects/edge.h"

namespace samestate {

/// How long a subject may take, in seconds.
struct SubjectPatience {
  double start = 120.0;             ///< until it is ready
  double call = 600.0;              ///< one call; "busy" prolongs it, to at most kBusyTimes this value
  std::function<bool()> stop = {};  ///< asked while it starts: once it returns true, the start is abandoned
  /// The number of subject processes that one calling process may have; calls beyond that wait. 0 means one
  /// if all its kernels run on a device, since each would import and compile the same, and otherwise as many
  /// as there are concurrent calls.
  int processes = 0;
  std::string log = {};  ///< a file to which the output of all its processes is appended; empty means stderr
};
inline constexpr double kBusyTimes = 10.0;

/// The kernels of an external program (docs/subjects.md), as rows of the table whose functions talk to it:
/// one subject process for each process that calls, one call at a time. Whatever it does to itself becomes a
/// verdict of its case.
struct Subject {
  std::vector<CallKernel> rows;
  std::vector<Declaration> kernels;  ///< one per row: those of the family first, as in `rows`
  std::string about;                 ///< what it says about itself, as JSON
};

/// Passes a call to the kernel of that name. Throws Trespass, and what a kernel throws.
using SubjectCall = std::function<Outcome(EdgeCall& call, const std::string& kernel)>;

/// The rows of a declaration. Throws Error for an unknown system, and for kernels that decode together but
/// receive their inputs in different ways.
[[nodiscard]] Subject subject_rows(Ready ready, SubjectCall call);

/// Starts the subject or connects to it, and reads its declaration. SPEC is python:NAME, socket:PATH, or a
/// command line for /bin/sh. Throws Error, with the spec, if it does not start, ends before it is ready, or
/// its declaration is invalid. When `stop` returns true it is ended with everything that it started before
/// the Error is thrown, and a call that would need it to be restarted then does not run.
[[nodiscard]] Subject load_subject(const std::string& spec, const SubjectPatience& patience);

/// Reads SAMESTATE_START_TIMEOUT, SAMESTATE_CALL_TIMEOUT, SAMESTATE_SUBJECTS and SAMESTATE_SUBJECT_LOG, if
/// they are set. Throws Error for an invalid time or number of processes.
[[nodiscard]] SubjectPatience patience_of_environment();

}  // namespace samestate
