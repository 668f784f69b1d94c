#pragma once

#include "harness/cases/case_line.h"
#include "oracles/judge_policy.h"
#include "oracles/systems/family.h"

namespace samestate {

/// Microseconds of one core that judging one head of the recurrent family takes, fitted to 40,000 judged
/// cases: the bound of a head takes tens of times as long as its evaluation in float64. System::work adds
/// them up, and judge_batch divides its time by them.
struct HeadCost {
  double held = 0.0;   ///< with its bound
  double plain = 0.0;  ///< in float64 only
};

/// The cost of a head of a sequence of T tokens of the case.
[[nodiscard]] HeadCost cost_of_head(const Case& c, const Family& family, Index T);

/// The mean over the sequences of the case.
[[nodiscard]] HeadCost mean_cost_of_head(const Case& c, const Family& family);

/// The number of heads of a case without a law that are compared with their bounds: JudgePolicy::held_heads,
/// or as many as its time allows.
[[nodiscard]] Index heads_to_hold(const HeadCost& cost, const JudgePolicy& policy);

/// The share of the other heads that float64 looks at: all, or as many as the policy's time allows.
[[nodiscard]] double share_in_float64(const HeadCost& cost, Index heads, const JudgePolicy& policy);

}  // namespace samestate
