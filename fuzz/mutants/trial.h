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
  double effort = 1.0;     ///< of the plan, as in PlanOptions
  std::uint64_t seed = 1;  ///< of the seeded cases
  /// Seconds after which a case counts as hung: ten times the slowest case of the plan on a busy core.
  double timeout = 20.0;
  std::uint64_t memory = std::uint64_t{4} << 30;  ///< bytes that a mutant may hold; 0: no limit
  std::function<bool()> stop = {};  ///< once it says so, no case is started, and none is waited for
};

/// What the gate made of one mutant.
struct MutantResult {
  const Mutant* mutant = nullptr;
  bool killed = false;
  std::string gate;  ///< that killed it: exact, row, head, state, twin, law, memory ...; crash or timeout
  std::string line;  ///< the case that did
  std::string reason;
  std::int64_t cases = 0;    ///< run, the last one included
  std::int64_t planned = 0;  ///< the plan's edge cases, and its seeded ones where those passed
  double ratio = 0.0;        ///< of the killing case; of a survivor: the worst
  double seconds = 0.0;
};

/// What trying the mutant takes beside the others, roughly, in seconds: most end in their first cases, and one that ends,
/// holds or damages its process may take as long as a case is allowed to; what no gate can tell from the correct kernel has
/// every case of its plan.
[[nodiscard]] double work_of(const Mutant& mutant, const MutantOptions& options);

/// The gate as CI runs it on a user's kernel, `samestate gate --kernel`, in plan order until the first case
/// that fails, crashes or does not end. See try_mutants. Throws Error where `stop` ended it.
[[nodiscard]] MutantResult try_mutant(const Mutant& mutant, const MutantOptions& options = {});

/// Each of them in a process of its own, `workers` at a time, so that none disturbs another or the caller,
/// whatever it does (see Workers for what that asks of the caller). finished() is called here, in order of
/// finish; the results come in the order of the list, without those that `stop` left.
[[nodiscard]] std::vector<MutantResult> try_mutants(std::span<const Mutant* const> list,
                                                    const MutantOptions& options, int workers,
                                                    const std::function<void(const MutantResult&)>& finished);

}  // namespace samestate
