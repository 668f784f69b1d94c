#pragma once

#include <string>
#include <vector>

#include "fixtures/run_file.h"
#include "harness/explain/explain.h"
#include "harness/records/record.h"

namespace samestate::cli {

/// Explains a failing run, with the mutants that give exactly these values first. It starts no mutant after `seconds`.
[[nodiscard]] Explanation explain_with_mutants(const Resolved& r, const Trace& trace, double seconds = 10.0);

/// Explains a failing run like explain_with_mutants, and also finds settings and sizes without which the case passes,
/// by rerunning it with one key changed at a time: at most Reruns::kMost reruns in half of `seconds`, which
/// Explanation::tried reports. A mutant comes first unless it fails without a setting without which the kernel passes.
/// A contract is named only if all cases of `others` that were tried pass under it; these are failures of the same
/// kernel in the same run, or cases near this one if there are none.
[[nodiscard]] Explanation explain_failure(const Resolved& r, const Trace& trace, const KernelTable& table,
                                          const std::vector<Case>& others = {}, double seconds = 10.0);

/// Returns the known mistakes at the head of an explanation's patterns in one sentence: the two likeliest, and how many
/// more give the same values; empty if a mutant does not head them.
[[nodiscard]] std::string known_mistakes(const std::vector<std::string>& patterns);

/// Names what a failing case looks like, from a repeated run in a process of its own: "no delta term (mutant ..)";
/// empty if it looks like nothing known, or the process did not return within `seconds`. `others` are other
/// cases of its kernel that failed in the run; a contract must pass them before it is named.
[[nodiscard]] std::string looks_like(const Record& failed, const std::vector<Case>& others,
                                     const KernelTable& table, double seconds);

/// Returns the case with its card as a gate, that is without the change card:nearest.
[[nodiscard]] Case exactly(Case c);

/// Prints the contracts near the run's under which it passes, searched for in this process, where an
/// interrupt ends the search; with `table` only those under which the kernel's failures near this case pass
/// too.
void print_neighbours(const RunFile& file, double seconds, const KernelTable* table = nullptr);

/// The path of a file of the run, for the process that asks for its neighbours and removes it; empty if none
/// can be written.
[[nodiscard]] std::string run_left_in(const RunFile& run);

}  // namespace samestate::cli
