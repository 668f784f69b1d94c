#pragma once

#include <span>
#include <string>
#include <string_view>

#include "harness/run/kernel_table.h"

namespace samestate {

/// The approximate number of seconds that a call may take if an interpreter runs the kernel
/// (KernelRow::interpreted); a plan leaves out more expensive ones, and a drawn case may take at most a sixth
/// of it at first.
inline constexpr double kMostInterpreted = 6.0;

/// The approximate seconds of one core that an interpreter takes for the calls of a case, if it runs a kernel
/// program by program and statement by statement, as Triton's does. 0 for any other kernel.
[[nodiscard]] double interpreted_seconds(const KernelRow& kernel, const Case& c);

/// Returns a text such as "an interpreter runs my.kernel: 83 small calls, about 4 minutes on 2 threads", so
/// that a user knows how long to wait for kernels that an interpreter runs; empty if there are none.
[[nodiscard]] std::string interpreted_text(std::span<const Case> cases, const KernelTable& table,
                                           int threads);

/// A plan that takes longer than this many seconds is announced.
inline constexpr double kLongPlan = 600.0;

/// Says how long judging the cases takes on that many threads, which case takes longest, and what makes the run shorter,
/// of which `instead` comes first; empty if it takes at most kLongPlan. Cases without an estimate do not count.
[[nodiscard]] std::string long_plan_text(std::span<const Case> cases, const KernelTable& table, int threads,
                                         std::string_view instead);

}  // namespace samestate
