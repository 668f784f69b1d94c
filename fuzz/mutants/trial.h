#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "fuzz/mutants/mutant.h"
#include "oracles/verdict.h"

namespace samestate {

struct MutantOptions {
  double effort = 1.0;     ///< effort of the plan, as in PlanOptions
  std::uint64_t seed = 1;  ///< seed of the seeded cases
  /// Seconds after which a case counts as hung: ten times the slowest case of the plan on a busy core.
  double timeout = 20.0;
  std::uint64_t memory = std::uint64_t{4} << 30;  ///< bytes that a mutant may allocate; 0 means no limit
  std::function<bool()> stop = {};                ///< once true, no case is started and none is waited for
};

/// The result of the gate on one mutant.
struct MutantResult {
  const Mutant* mutant = nullptr;
  bool killed = false;
  std::string gate;  ///< the gate that killed it: exact, row, head, state, twin, law, memory ...; crash or
                     ///< timeout
  std::string line;  ///< the case that killed it
  std::string reason;
  std::int64_t cases = 0;    ///< cases that ran, including the last one
  std::int64_t planned = 0;  ///< the plan's edge cases, and its seeded ones if those passed
  double ratio = 0.0;        ///< of the killing case; for a survivor, the worst
  double seconds = 0.0;
};

/// A rough estimate of the seconds that trying the mutant takes. Most mutants are killed in their first
/// cases; one that ends, hangs or damages its process may take as long as a case is allowed to; one that no
/// gate can distinguish from the correct kernel runs every case of its plan.
[[nodiscard]] double work_of(const Mutant& mutant, const MutantOptions& options);

/// Runs the gate as CI runs it on a user's kernel, `samestate gate --kernel`, in plan order until the first
/// case that fails, crashes or does not end. See try_mutants. Throws Error if `stop` ended it.
[[nodiscard]] MutantResult try_mutant(const Mutant& mutant, const MutantOptions& options = {});

/// Tries each mutant in a process of its own, `workers` at a time, so that none disturbs another or the
/// caller (see Workers for the requirements on the caller). finished() is called here, in order of
/// completion; the results are in the order of the list, without those that `stop` left out.
[[nodiscard]] std::vector<MutantResult> try_mutants(std::span<const Mutant* const> list,
                                                    const MutantOptions& options, int workers,
                                                    const std::function<void(const MutantResult&)>& finished);

}  // namespace samestate
