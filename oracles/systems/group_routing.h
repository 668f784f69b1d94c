#pragma once

#include <vector>

#include "oracles/systems/operator.h"
#include "oracles/systems/routing.h"

/// What is certain of a group-limited router's choice when its scores carry errors (EQUATIONS 5.8, 8.2).
namespace samestate {

/// A router of N experts in `groups` of neighbours, the best `kept` of which may be chosen from.
struct GroupLimit {
  Index groups = 1;
  Index kept = 1;
  Index chosen = 1;  ///< experts a token
};

/// The choice by a kernel that compares s + bias, each within its error, and sums of the two largest of a group. One is
/// certainly before another where what both may be does not meet. Of experts with the same bias whose logits, or whose scores as
/// stored, are equal without any error (a zero token) a kernel makes the same number, so does it of the scores of groups whose two
/// largest are such: the lower index. Any other tie is open, and so is an expert that some choice of the open groups selects.
/// logits, scores: [1, N]; bias: [N] or empty.
[[nodiscard]] std::vector<Chosen> certain_group_choice(const Matrix<Running>& logits,
                                                       const Matrix<Running>& scores,
                                                       const Vector<Running>& bias, const GroupLimit& limit);

/// The row of the system group_limited_router, which expert_router_operators() lists.
[[nodiscard]] Operator group_limited_router_operator();

}  // namespace samestate
