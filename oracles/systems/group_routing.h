#pragma once

#include <vector>

#include "oracles/systems/operator.h"
#include "oracles/systems/routing.h"

/// The part of a group-limited router's choice that is certain if its scores carry errors (EQUATIONS 5.8,
/// 8.2).
namespace samestate {

/// A router of N experts in `groups` of neighbours, which chooses from the best `kept` groups.
struct GroupLimit {
  Index groups = 1;
  Index kept = 1;
  Index chosen = 1;  ///< experts per token
};

/// The choice by a kernel that compares s + bias, each within its error, and for a group the sum of its two
/// largest. One candidate is certainly before another if their ranges do not overlap. Experts with the same
/// bias whose logits, or whose stored scores, are equal without any error (a zero token) get the same number
/// in a kernel, and so do the scores of groups whose two largest are such: the lower index wins. Any other
/// tie is open, and so is an expert that some choice of the open groups selects. logits, scores: [1, N];
/// bias: [N] or empty.
[[nodiscard]] std::vector<Chosen> certain_group_choice(const Matrix<Running>& logits,
                                                       const Matrix<Running>& scores,
                                                       const Vector<Running>& bias, const GroupLimit& limit);

/// The row of the system group_limited_router, which is part of expert_router_operators().
[[nodiscard]] Operator group_limited_router_operator();

}  // namespace samestate
