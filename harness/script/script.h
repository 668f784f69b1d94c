#pragma once

#include <cstddef>
#include <string>

#include "harness/run/run_case.h"

namespace samestate {

/// What a script says beside what its run holds.
struct ScriptWords {
  std::string sentence;  ///< what the failure is, for a person; empty: the case passes
  std::string repeat;    ///< the command that repeats it with samestate
  std::string
      recorded;  ///< when the kernel gave these outputs and what it was built from: "2026-11-29 by samestate 0.1.0"
  /// Python that defines `kernel`, where the kernel can be called from Python (python/samestate/scripting.py has its
  /// arguments); empty: the outputs of the run are embedded.
  std::string call = {};
  std::string usage =
      {};  ///< what stands behind `python3 FILE.py`, and what is needed beside numpy; of `call`
  std::string needs = {};
};

/// What is known of a case before it runs: its inputs as its kernel is given them and, of named tensors, what is expected of
/// it. For script_of where the kernel ended its process.
[[nodiscard]] Trace trace_without_run(const Resolved& r, const KernelTable& table);

/// The longest script, in bytes: what an issue takes as an attachment and an editor opens.
inline constexpr std::size_t kLongestScript = 2'000'000;

/// One Python file that repeats a run's comparison without samestate: the inputs bit for bit, the equation in float64, the
/// kernel's call or the outputs that it gave, the judge's limits as numbers. It ends with 0 where all is within them, with 1
/// where it is not, and prints a table. Without outputs in `trace` (a kernel that crashed) there has to be a call.
/// Throws Error where that cannot be told in one file: a verdict that no limit on these outputs gives (the twin, drawn
/// roundings, memory, vacuous runs), calls over ranks, more than kLongestScript.
[[nodiscard]] std::string script_of(const Record& record, const Trace& trace, const ScriptWords& words);

}  // namespace samestate
