#pragma once

#include "harness/run/kernel_table.h"

namespace samestate {

/// Seconds that a call may take, about, of a kernel that an interpreter runs (KernelRow::interpreted); a plan leaves dearer ones
/// out, and one drawn case takes at most a sixth of it at first.
inline constexpr double kMostInterpreted = 6.0;

/// Seconds of one core, about, that an interpreter takes for the calls of a case: one that runs a kernel program by program and
/// statement by statement, as Triton's does. 0 for any other kernel.
[[nodiscard]] double interpreted_seconds(const KernelRow& kernel, const Case& c);

}  // namespace samestate
