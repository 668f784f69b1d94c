#pragma once

#include "harness/cases/case_line.h"

namespace samestate {

/// What the cost model counts for one token of one head; of a scan, of one channel. NaN where it has no model
/// or the form has no chunk.
struct TokenCost {
  double flops = 0.0;
  double bytes = 0.0;
};

/// Of the recurrence of a case. Of a layer the recurrence inside it: its projections do not depend on the
/// chunk.
[[nodiscard]] TokenCost token_cost(const Case& c);

}  // namespace samestate
