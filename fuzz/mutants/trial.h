#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "fuzz/mutants/mutant.h"
#include "oracles/verdict.h"

namespace samestate {

/// Seconds without computing after which a case counts as hung. It is noticed when the kernel returns.
inline constexpr double kCaseSeconds = 4.0;

struct MutantOptions {
  double effort = 1.0;     ///< of the plan, as in PlanOptions
  std::uint64_t seed = 1;  ///< of the seeded cases
};

/// What the gate made of one mutant.
struct MutantResult {
  const Mutant* mutant = nullptr;
  bool killed = false;
  std::string gate;  ///< that killed it: exact, row, head, state, twin, law, memory ...; crash or timeout
  std::string line;  ///< the case that did
  std::string reason;
  std::int64_t cases = 0;  ///< run, the last one included
  std::int64_t planned = 0;
  double ratio = 0.0;  ///< of the killing case; of a survivor: the worst
  double seconds = 0.0;
};

/// The gate as CI runs it on a user's kernel, `samestate gate --kernel`, in plan order until the first case
/// that fails.
[[nodiscard]] MutantResult try_mutant(const Mutant& mutant, const MutantOptions& options = {});

/// Each of them on its own thread of `threads`; finished() is called one at a time, in order of finish. The
/// results come in the order of the list.
[[nodiscard]] std::vector<MutantResult> try_mutants(std::span<const Mutant* const> list,
                                                    const MutantOptions& options, int threads,
                                                    const std::function<void(const MutantResult&)>& finished);

}  // namespace samestate
