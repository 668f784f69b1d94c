#pragma once

#include "reference/costs/counts.h"
#include "reference/costs/recurrence.h"

/// Mamba-2's state space duality (EQ-08): a retention whose queries C and keys B are shared by the heads of a
/// group, and whose decay is data.
namespace samestate::costs {

/// All heads of one sequence. The defaults are a block of 1536 inner channels.
struct StateSpaceConfig {
  Count heads = 24;
  Count groups = 1;
  Count head_width = 64;    ///< P
  Count state_width = 128;  ///< N
  Count operand_bytes = 2;  ///< x, y, B, C
  Count step_bytes = 4;     ///< Delta, one per head
  Count state_bytes = 4;
};

/// Elements of the states of all heads, [H, P, N]. Throws Error if groups does not divide heads.
[[nodiscard]] inline Count state_elements(const StateSpaceConfig& c) {
  require_at_least(c.groups, 1, "groups");
  (void)quotient(c.heads, c.groups, "heads / groups");
  return product({c.heads, c.head_width, c.state_width});
}

/// Operations per token for all heads, in terms of order P N: decay 1, write 2, read 2.
[[nodiscard]] inline Count duality_flops_per_token(const StateSpaceConfig& c) {
  return product({5, state_elements(c)});
}

/// The quadratic dual of one chunk, all heads: C B^T once per group, its product with x for each head, and
/// the contributions to and from the state. Throws Error if chunk < 1.
[[nodiscard]] inline ChunkFlops duality_chunk_flops(const StateSpaceConfig& c, Count chunk) {
  require_at_least(chunk, 1, "chunk");
  const Count square = product({chunk, chunk});
  ChunkFlops f;
  f.scores = product({2, square, c.groups, c.state_width});
  f.within = product({2, square, c.heads, c.head_width});
  f.state = product({4, chunk, state_elements(c)});
  f.decay = state_elements(c);
  return f;
}

/// Bytes of the tensors that are read or written for each token, over all heads: x, y, B, C and Delta.
[[nodiscard]] inline Count duality_token_bytes(const StateSpaceConfig& c) {
  return sum({product({2, c.heads, c.head_width, c.operand_bytes}),
              product({2, c.groups, c.state_width, c.operand_bytes}), product({c.heads, c.step_bytes})});
}

/// Bytes that the states of all heads add to each chunk: they are written, and the next chunk reads them.
[[nodiscard]] inline Count duality_state_bytes(const StateSpaceConfig& c) {
  return product({2, state_elements(c), c.state_bytes});
}

}  // namespace samestate::costs
