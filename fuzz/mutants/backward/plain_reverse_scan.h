#pragma once

#include "optimized/operator_kernel.h"

/// The backward pass of the selective scan as it stands in the equation, in which one step may be wrong.
namespace samestate::mutants {

/// The step that is wrong.
enum class ScanSlip {
  none,
  decay_lost,                    ///< dh is handed to the token before as it is
  decay_of_the_token_before,     ///< dh is multiplied by that token's decay
  skip_without_input_gradient,   ///< d.u lacks D d.y
  step_slope_lost,               ///< d.dt lacks the derivative of the softplus
  rate_without_itself,           ///< d.A_log is d.A
  rate_without_step,             ///< d.A lacks Delta
  input_without_step_gradient,   ///< d.Delta is that through the decay alone
  decay_without_step_gradient,   ///< d.Delta is that through the input alone
  channels_overwritten,          ///< d.B and d.C are those of the last channel
  last_token_of_chunk_lost,      ///< d.y of a chunk's last token does not reach dh
  state_of_the_chunk_before,     ///< a chunk's states begin at the start of the one before it
  state_after_for_state_before,  ///< d.A is made of the state behind the token
  gate_lost,                     ///< d.y is d.out
  gate_of_sum_without_skip,      ///< d.z lacks the skip
  slope_of_logistic,             ///< d.z has sigma(z) for the derivative of silu
  hold_slope_lost,               ///< zero-order hold: d.A lacks the part through the input
  hold_by_step_is_one,           ///< zero-order hold: d.Delta has 1 for the derivative of the input's factor
  carried_into_next_sequence,    ///< dh of one sequence goes on in the next
  last_decay_lost,               ///< d.h lacks the decay of the first token
};

/// A dense call; inputs and outputs are dense tensors. Gradients of tokens are rounded to contract.output.
[[nodiscard]] Outcome plain_reverse_scan(const OperatorArguments& call, const Contract& contract,
                                         ScanSlip slip);

}  // namespace samestate::mutants
