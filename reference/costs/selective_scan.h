#pragma once

#include "reference/costs/counts.h"

/// Parameters of a Mamba block, the document's sketch and the upstream one (EQUATIONS 5.10).
namespace samestate::costs {

struct SelectiveScanConfig {
  Count model_width = 768;
  Count state_width = 16;
  Count expansion = 2;  ///< d_inner = expansion model_width; the document's sketch has 1 (SSM-5)
  Count convolution_width = 4;
  bool full_rank_step = false;  ///< the step from d_inner columns of x_proj (SSM-6), not from dt_rank
};

/// Widths that follow from a configuration.
struct SelectiveScanShape {
  Count inner = 0;      ///< d_inner
  Count input = 0;      ///< columns of in_proj: x and z
  Count step_rank = 0;  ///< ceil(model_width / 16), or d_inner at full rank
  Count selected = 0;   ///< columns of x_proj: step, B and C
  Count state = 0;      ///< elements of h, [d_inner, N]: constant in the length (SSM-3)
};

/// Throws Error for a count below 1.
[[nodiscard]] inline SelectiveScanShape shape(const SelectiveScanConfig& c) {
  require_at_least(c.model_width, 1, "model_width");
  require_at_least(c.state_width, 1, "state_width");
  require_at_least(c.expansion, 1, "expansion");
  SelectiveScanShape s;
  s.inner = product({c.expansion, c.model_width});
  s.input = product({2, s.inner});
  s.step_rank = c.full_rank_step ? s.inner : (c.model_width + 15) / 16;
  s.selected = sum({s.step_rank, product({2, c.state_width})});
  s.state = product({s.inner, c.state_width});
  return s;
}

/// Sequential work and depth of an inclusive scan of T elements: a loop has depth T; Hillis-Steele has depth
/// ceil(log2 T) (SSM-3).
[[nodiscard]] inline Count scan_depth(Count length) {
  Count depth = 0;
  for (Count reach = 1; reach < length; reach = product({2, reach})) ++depth;
  return depth;
}

}  // namespace samestate::costs
