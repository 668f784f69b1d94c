#pragma once

#include <vector>

#include "fuzz/search/shrink.h"
#include "harness/run/kernel_table.h"

namespace samestate::cli {

struct ShrinkCaseOptions {
  double timeout = 600.0;  ///< seconds that one run may take
  double budget = 60.0;    ///< seconds for all of them
  bool say = true;         ///< prints what came of it
};

/// A failing case made smaller, and the cases behind which alone it fails.
struct ShrunkCase {
  Shrunk small;
  std::vector<Case> after;
};

/// The smallest case that fails alike, or the case itself where it is flaky, in worker processes. Behind `after` first those
/// that are not needed are left out, then the case and then each of them is made smaller; every run has a process of its
/// own. An interrupt ends it with the smallest so far. Throws NothingToShrink where the case does not fail.
[[nodiscard]] ShrunkCase shrink_case(const Case& c, std::vector<Case> after, const KernelTable& table,
                                     const ShrinkCaseOptions& options);

}  // namespace samestate::cli
