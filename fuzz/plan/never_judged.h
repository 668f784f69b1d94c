#pragma once

#include <span>
#include <string_view>

#include "harness/cases/system.h"

namespace samestate {

/// Cases that show nothing whatever a kernel does, so that no plan owes their pairs. A case that is vacuous by chance is
/// none of them: it is tried again with other choices (PlanCoverage::again).
struct NeverJudged {
  std::string_view
      systems;  ///< names with blanks between; empty: each of named tensors that carries no state
  bool (*holds)(const Case&);
  std::string_view example;  ///< keys of such a case, which a test shows to be vacuous
  std::string_view reason;
};

[[nodiscard]] std::span<const NeverJudged> never_judged();

/// The row that a case of the system falls under; null where there is none.
[[nodiscard]] const NeverJudged* never_judged(const System& system, const Case& c);

}  // namespace samestate
