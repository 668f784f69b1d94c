#pragma once

#include <span>
#include <string_view>

#include "harness/cases/system.h"

namespace samestate {

/// Cases that show nothing whatever a kernel does, so no plan is expected to cover their pairs. A case that
/// is vacuous by chance is not one of them: it is tried again with other choices (PlanCoverage::again).
struct NeverJudged {
  std::string_view
      systems;  ///< names separated by blanks; empty means every system of named tensors that carries no
                ///< state
  bool (*holds)(const Case&);
  std::string_view example;  ///< keys of such a case, which a test shows to be vacuous
  std::string_view reason;
};

[[nodiscard]] std::span<const NeverJudged> never_judged();

/// The row that applies to a case of the system; null if none does.
[[nodiscard]] const NeverJudged* never_judged(const System& system, const Case& c);

}  // namespace samestate
