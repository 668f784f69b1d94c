#pragma once

#include <cstddef>
#include <string>

#include "harness/run/run_case.h"

namespace samestate {

/// The parts of a script besides the data of its run.
struct ScriptWords {
  std::string sentence;  ///< describes the failure for a person; empty if the case passes
  std::string repeat;    ///< the command that repeats the case with samestate
  std::string
      recorded;  ///< when the kernel gave these outputs, and its version: "2026-11-29 by samestate 0.1.0"
  /// Python that defines `kernel`, if the kernel can be called from Python (python/samestate/scripting.py has
  /// its arguments); if empty, the outputs of the run are embedded.
  std::string call = {};
  std::string usage = {};  ///< arguments after `python3 FILE.py`, and what `call` needs besides numpy
  std::string needs = {};
};

/// Returns the trace of a case that did not run: the inputs as its kernel receives them and, for named
/// tensors, the expected outputs. It is for script_of if the kernel ended its process.
[[nodiscard]] Trace trace_without_run(const Resolved& r, const KernelTable& table);

/// The longest script, in bytes: issue trackers accept it as an attachment and editors open it.
inline constexpr std::size_t kLongestScript = 2'000'000;

/// One Python file that repeats a run's comparison without samestate: the inputs bit for bit, the equation in
/// float64, the kernel's call or its recorded outputs, and the judge's limits as numbers. It prints a table,
/// and exits with 0 if everything is within the limits and with 1 otherwise. If `trace` has no outputs (a
/// kernel that crashed) there must be a call. Throws Error if one file cannot express it: for a verdict that
/// does not follow from limits on these outputs (the twin, drawn roundings, memory, vacuous runs), for calls
/// over ranks, and above kLongestScript.
[[nodiscard]] std::string script_of(const Record& record, const Trace& trace, const ScriptWords& words);

}  // namespace samestate
