#pragma once

#include "harness/cases/case_line.h"
#include "oracles/judge_policy.h"
#include "oracles/systems/family.h"

namespace samestate {

/// Microseconds of one core that judging one head of the recurrent family takes, fitted on 40,000 judged cases: the head's bound
/// takes tens of times what its evaluation in float64 takes. System::work adds them up, and judge_batch divides its time by them.
struct HeadCost {
  double held = 0.0;   ///< within its bound
  double plain = 0.0;  ///< in float64 alone
};

/// The cost of a head of a sequence of T tokens of the case.
[[nodiscard]] HeadCost cost_of_head(const Case& c, const Family& family, Index T);

/// The mean over the sequences of the case.
[[nodiscard]] HeadCost mean_cost_of_head(const Case& c, const Family& family);

/// Returns how many heads of a case without a law are held to their bounds: JudgePolicy::held_heads, or as many as its time allows.
[[nodiscard]] Index heads_to_hold(const HeadCost& cost, const JudgePolicy& policy);

/// The share of the other heads that float64 looks at: all, or as many as the policy's time allows.
[[nodiscard]] double share_in_float64(const HeadCost& cost, Index heads, const JudgePolicy& policy);

}  // namespace samestate
