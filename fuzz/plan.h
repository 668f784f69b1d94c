#pragma once

#include <cstdint>
#include <vector>

#include "harness/run/run_case.h"

namespace samestate {

/// Which cases a campaign runs.
struct PlanOptions {
  std::uint64_t seed = 1;      ///< of the seeded cases; the edge cases are always the same
  double effort = 1.0;         ///< multiplies the number of seeded cases
  std::string system;          ///< only this one; empty: all
  std::string device;          ///< only kernels of this one (cpu, cuda); empty: all
  std::string kernel;          ///< only this one; empty: all in the table
  std::int64_t max_cases = 0;  ///< at most this many, spread over the whole plan; 0: no limit
};

/// Seeded cases of a full plan at effort 1, over all kernels of the recurrent family on one device.
inline constexpr std::int64_t kSeededCases = 6000;
/// The same for each kernel of an operator.
inline constexpr std::int64_t kSeededOperatorCases = 100;

/// Edge cases first (T in {0, 1, C-1, C, C+1}, dk != dv, ratio 3, every contract, regime and law at least
/// once for each kernel), then seeded ones. The plan is a function of the options and the table's rows alone.
/// Throws Error for a system, device or kernel that does not exist, or a kernel that the other two exclude.
[[nodiscard]] std::vector<Case> plan_cases(const KernelTable& table, const PlanOptions& options);

}  // namespace samestate
