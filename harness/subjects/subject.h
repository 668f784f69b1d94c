#pragma once

#include <functional>
#include <string>
#include <vector>

#include "harness/run/plugin.h"
#include "harness/subjects/declaration.h"
#include "harness/subjects/edge.h"

namespace samestate {

/// How long a subject may take; seconds.
struct SubjectPatience {
  double start = 120.0;             ///< until it is ready
  double call = 600.0;              ///< one call; "busy" prolongs it, to kBusyTimes of this at most
  std::function<bool()> stop = {};  ///< asked while it starts: once it is true, the start is given up
  /// Processes of it that a process which calls may have at a time, beyond which calls wait for one; 0: one where all its
  /// kernels run on a device, since each would import and compile the same, else as many as there are calls at a time.
  int processes = 0;
  std::string log = {};  ///< a file to which all that its processes print is appended; empty: stderr
};
inline constexpr double kBusyTimes = 10.0;

/// The kernels of a program that was not built for this one (docs/lookup/subjects.md), as rows of the table whose functions talk
/// to it: a process of its own a process that calls, and a call at a time. What it does to itself is a verdict of its case.
struct Subject {
  std::vector<CallKernel> rows;
  std::vector<Declaration> kernels;  ///< by row: those of the family first, as in `rows`
  std::string about;                 ///< what it said of itself, as JSON
};

/// How a call of a kernel of that name reaches it. Throws Trespass, and what a kernel throws.
using SubjectCall = std::function<Outcome(EdgeCall& call, const std::string& kernel)>;

/// The rows of what was declared. Throws Error: a system that is not there, kernels that decode together and get their
/// inputs in different ways.
[[nodiscard]] Subject subject_rows(Ready ready, SubjectCall call);

/// Starts or connects to it and reads what it declares. SPEC: python:NAME, socket:PATH, or a command line of /bin/sh.
/// Throws Error that holds the spec: it does not start, ends before it is ready, or declares what is none; at `stop` it is
/// ended, with all that it started, before the Error is thrown; a call for which it would be started again does not run then.
[[nodiscard]] Subject load_subject(const std::string& spec, const SubjectPatience& patience);

/// SAMESTATE_START_TIMEOUT, SAMESTATE_CALL_TIMEOUT, SAMESTATE_SUBJECTS and SAMESTATE_SUBJECT_LOG where they are set. Throws
/// Error for what is no time, and no number of processes.
[[nodiscard]] SubjectPatience patience_of_environment();

}  // namespace samestate
