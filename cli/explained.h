#pragma once

#include <string>
#include <vector>

#include "fixtures/run_file.h"
#include "harness/explain/explain.h"
#include "harness/records/record.h"

namespace samestate::cli {

/// The explanation of a run, with the mutants that give just these values; starts none after `seconds`.
[[nodiscard]] Explanation explain_with_mutants(const Resolved& r, const Trace& trace, double seconds = 10.0);

/// The same, first the settings and sizes without which the case passes: what depends on one is no mistake of the equation,
/// however like it the values are. Contracts are named that pass all of `others` that were tried, failures of the same
/// kernel in the same run; without any, of cases near this one.
[[nodiscard]] Explanation explain_failure(const Resolved& r, const Trace& trace, const KernelTable& table,
                                          const std::vector<Case>& others = {}, double seconds = 10.0);

/// What the run of a failing case looks like, repeated in a process of its own: "no delta term (mutant ..)"; empty
/// where it looks like nothing that is known, or the process did not come back within `seconds`. `others`: other cases
/// of its kernel that failed in the run, which a contract must pass before it is named.
[[nodiscard]] std::string looks_like(const Record& failed, const std::vector<Case>& others,
                                     const KernelTable& table, double seconds);

/// The case with a card that gates: without the change card:nearest.
[[nodiscard]] Case exactly(Case c);

/// Prints the contracts near the run's under which it passes, looked for in this process, where an interrupt ends it; with
/// `table` those alone under which the kernel's failures near this case pass too.
void print_neighbours(const RunFile& file, double seconds, const KernelTable* table = nullptr);

/// A file of the run for the process that asks for its neighbours and removes it; empty where none can be made.
[[nodiscard]] std::string run_left_in(const RunFile& run);

}  // namespace samestate::cli
