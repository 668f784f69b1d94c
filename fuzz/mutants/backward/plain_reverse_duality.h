#pragma once

#include "optimized/operator_kernel.h"

/// The backward pass of the state space duality as it stands in the equation, in which one step may be wrong.
namespace samestate::mutants {

/// The step that is wrong.
enum class DualitySlip {
  none,
  decay_lost,                    ///< dS is handed to the token before as it is
  decay_of_the_token_before,     ///< dS is multiplied by that token's decay
  skip_without_input_gradient,   ///< d.x lacks D d.y
  step_slope_lost,               ///< d.dt lacks the derivative of the softplus
  rate_without_itself,           ///< d.A_log is d.A
  rate_without_step,             ///< d.A lacks Delta
  write_without_step_gradient,   ///< d.Delta is that through the decay alone
  decay_without_step_gradient,   ///< d.Delta is that through the write alone
  input_without_step,            ///< d.x lacks Delta
  heads_overwritten,             ///< d.B and d.C of a group are those of its last head
  last_token_of_chunk_lost,      ///< d.y of a chunk's last token does not reach dS
  state_of_the_chunk_before,     ///< a chunk's states begin at the start of the one before it
  state_after_for_state_before,  ///< dg is made of the state behind the token
  carried_into_next_sequence,    ///< dS of one sequence goes on in the next
  last_decay_lost,               ///< d.S lacks the decay of the first token
};

/// A dense call; inputs and outputs are dense tensors. Gradients of tokens are rounded to contract.output.
[[nodiscard]] Outcome plain_reverse_duality(const OperatorArguments& call, const Contract& contract,
                                            DualitySlip slip);

}  // namespace samestate::mutants
