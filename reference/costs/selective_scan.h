#pragma once

#include "reference/costs/counts.h"

/// Parameters of a Mamba block, for the document's sketch and for upstream code, and the work of its scan
/// (EQUATIONS 5.10).
namespace samestate::costs {

struct SelectiveScanConfig {
  Count model_width = 768;
  Count state_width = 16;
  Count expansion = 2;  ///< d_inner = expansion model_width; the document's sketch uses 1 (SSM-5)
  Count convolution_width = 4;
  bool full_rank_step = false;  ///< x_proj has d_inner columns for the time step (SSM-6), not dt_rank
};

/// Widths that follow from the configuration.
struct SelectiveScanShape {
  Count inner = 0;      ///< d_inner
  Count input = 0;      ///< columns of in_proj: x and z
  Count step_rank = 0;  ///< ceil(model_width / 16), or d_inner at full rank
  Count selected = 0;   ///< columns of x_proj: step, B and C
  Count state = 0;      ///< elements of h, [d_inner, N]: constant in the length (SSM-3)
};

/// Throws Error if a count is below 1.
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

/// Sequential depth of an inclusive scan of T elements: T for a loop, ceil(log2 T) for Hillis-Steele (SSM-3).
[[nodiscard]] inline Count scan_depth(Count length) {
  Count depth = 0;
  for (Count reach = 1; reach < length; reach = product({2, reach})) ++depth;
  return depth;
}

/// The scan itself, over all channels of one sequence, with Euler's discretisation.
struct ScanConfig {
  Count channels = 1536;
  Count states = 16;        ///< per channel
  Count operand_bytes = 2;  ///< u, Delta, z, out, B, C
  Count state_bytes = 4;
};

/// Elements of h, [D, N].
[[nodiscard]] inline Count state_elements(const ScanConfig& c) { return product({c.channels, c.states}); }

/// Operations per token, in terms of order D N: Delta A 1, B (Delta u) 1, h <- a h + b 2, C h 2.
[[nodiscard]] inline Count scan_flops_per_token(const ScanConfig& c) {
  return product({6, state_elements(c)});
}

/// A chunk whose maps h -> a h + b are composed before they are applied, which takes 3 more operations for
/// each token but the first (a a', a b' + b). The parallelism costs half as much work again. Throws Error if
/// chunk < 1.
[[nodiscard]] inline Count scan_chunk_flops(const ScanConfig& c, Count chunk) {
  require_at_least(chunk, 1, "chunk");
  return product({state_elements(c), sum({product({6, chunk}), product({3, chunk - 1})})});
}

/// Bytes of the tensors that are read or written for each token, over all channels: u, Delta, z, out, and B
/// and C once.
[[nodiscard]] inline Count scan_token_bytes(const ScanConfig& c) {
  return product({c.operand_bytes, sum({product({4, c.channels}), product({2, c.states})})});
}

/// Bytes that the state adds to each chunk: it is written, and the next chunk reads it.
[[nodiscard]] inline Count scan_state_bytes(const ScanConfig& c) {
  return product({2, state_elements(c), c.state_bytes});
}

}  // namespace samestate::costs
