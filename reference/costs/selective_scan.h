#pragma once

#include "reference/costs/counts.h"

/// Parameters of a Mamba block, the document's sketch and the upstream one, and the work of its scan
/// (EQUATIONS 5.10).
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

/// The scan itself, all channels of one sequence; Euler's discretisation.
struct ScanConfig {
  Count channels = 1536;
  Count states = 16;        ///< of a channel
  Count operand_bytes = 2;  ///< u, Delta, z, out, B, C
  Count state_bytes = 4;
};

/// Elements of h, [D, N].
[[nodiscard]] inline Count state_elements(const ScanConfig& c) { return product({c.channels, c.states}); }

/// One token, in terms of order D N: Delta A 1, B (Delta u) 1, h <- a h + b 2, C h 2.
[[nodiscard]] inline Count scan_flops_per_token(const ScanConfig& c) {
  return product({6, state_elements(c)});
}

/// A chunk whose maps h -> a h + b are composed before they are applied: 3 more for each token but the first
/// (a a', a b' + b). The parallelism is paid for with half as much work again. Throws Error for chunk < 1.
[[nodiscard]] inline Count scan_chunk_flops(const ScanConfig& c, Count chunk) {
  require_at_least(chunk, 1, "chunk");
  return product({state_elements(c), sum({product({6, chunk}), product({3, chunk - 1})})});
}

/// Bytes of the tensors that a token brings and takes, all channels: u, Delta, z, out, and B, C once.
[[nodiscard]] inline Count scan_token_bytes(const ScanConfig& c) {
  return product({c.operand_bytes, sum({product({4, c.channels}), product({2, c.states})})});
}

/// Bytes that the state adds to a chunk: written, and read by the next one.
[[nodiscard]] inline Count scan_state_bytes(const ScanConfig& c) {
  return product({2, state_elements(c), c.state_bytes});
}

}  // namespace samestate::costs
