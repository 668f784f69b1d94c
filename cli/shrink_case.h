#pragma once

#include <vector>

#include "fuzz/search/shrink.h"
#include "harness/run/kernel_table.h"

namespace samestate::cli {

struct ShrinkCaseOptions {
  double timeout = 600.0;  ///< seconds that one run may take
  double budget = 60.0;    ///< seconds for all of them
  bool say = true;         ///< print the result
};

/// A failing case that was made smaller, and the cases after which alone it fails.
struct ShrunkCase {
  Shrunk small;
  std::vector<Case> after;
};

/// Finds the smallest case that fails in the same way, in worker processes; returns the case itself if it is flaky. If
/// it fails only after the cases `after`, first those that are not needed are left out, then the case and then each of
/// the others is made smaller; every run then has a process of its own. An interrupt ends it with the smallest case so
/// far. Throws NothingToShrink if the case does not fail.
[[nodiscard]] ShrunkCase shrink_case(const Case& c, std::vector<Case> after, const KernelTable& table,
                                     const ShrinkCaseOptions& options);

}  // namespace samestate::cli
