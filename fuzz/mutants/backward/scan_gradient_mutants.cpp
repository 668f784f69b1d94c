#include <algorithm>

#include <string_view>
#include "fuzz/mutants/backward/plain_reverse_duality.h"
#include "fuzz/mutants/backward/plain_reverse_scan.h"
#include "fuzz/mutants/backward/sum_faults.h"

/// Faults of the backward passes of state spaces.
namespace samestate::mutants {
namespace {

CallFault slipped(ScanSlip slip) {
  return [slip](const OperatorKernel&, ChangedCall& c, const Contract& contract) {
    return plain_reverse_scan(c.call, contract, slip);
  };
}

CallFault slipped(DualitySlip slip) {
  return [slip](const OperatorKernel&, ChangedCall& c, const Contract& contract) {
    return plain_reverse_duality(c.call, contract, slip);
  };
}

/// The cotangent of the state that is handed on counts as zero.
Change last_state_ignored(std::string_view cotangent) {
  return [cotangent](ChangedCall& c) {
    if (std::ranges::any_of(c.call.inputs, [&](const auto& x) { return x.name == cotangent; }))
      c.fill(cotangent, 0.0F);
  };
}

Change without_gradient(std::string_view output) {
  return [output](ChangedCall& c) { std::ranges::fill(c.output(output), 0.0F); };
}

void add_scan_faults(std::vector<Mutant>& out) {
  using enum ScanSlip;
  add_faults(
      out, "cpu.selective_scan.backward.chunked",
      with_sums(
          {{"F", "final_cotangent_ignored", "d.h of the state that is handed on counts as zero",
            misread(last_state_ignored("d.h"))},
           {"F", "state_counts_as_zero", "the state that came in is not read", misread(filled("h", 0.0F))},
           {"F", "skip_has_no_gradient", "d.skip is zero", miswritten(without_gradient("d.skip"))},
           {"F", "euler_for_hold", "Euler's input where zero-order hold is asked for",
            misread(fixed("hold", 0))},
           {"F", "no_bias_back", "dt_bias is left out", misread(filled("dt_bias", 0.0F))},
           {"F", "decay_lost", "dh is handed to the token before without the decay", slipped(decay_lost)},
           {"F", "decay_of_the_token_before", "dh decays as the state before the token did",
            slipped(decay_of_the_token_before)},
           {"F", "skip_without_input_gradient", "d.u lacks the skip", slipped(skip_without_input_gradient)},
           {"F", "step_slope_lost", "d.dt lacks the derivative of the softplus", slipped(step_slope_lost)},
           {"F", "rate_without_itself", "d.A_log is the gradient of A", slipped(rate_without_itself)},
           {"F", "rate_without_step", "the gradient of A lacks Delta", slipped(rate_without_step)},
           {"F", "input_without_step_gradient", "d.dt lacks the part through the input",
            slipped(input_without_step_gradient)},
           {"F", "decay_without_step_gradient", "d.dt lacks the part through the decay",
            slipped(decay_without_step_gradient)},
           {"F", "channels_overwritten", "d.B and d.C are those of the last channel",
            slipped(channels_overwritten)},
           {"F", "last_token_of_chunk_lost", "the cotangent of a chunk's last token does not reach the state",
            slipped(last_token_of_chunk_lost)},
           {"F", "state_of_the_chunk_before", "states are made again from the start of the chunk before",
            slipped(state_of_the_chunk_before)},
           {"F", "state_after_for_state_before",
            "gradients of the decay are made of the state behind the token",
            slipped(state_after_for_state_before)},
           {"F", "gate_lost", "the cotangent of y lacks silu(z)", slipped(gate_lost)},
           {"F", "gate_of_sum_without_skip", "d.z lacks the skip", slipped(gate_of_sum_without_skip)},
           {"F", "slope_is_sigma", "sigma(z) in place of the derivative of silu", slipped(slope_of_logistic)},
           {"F", "hold_slope_lost", "zero-order hold: the gradient of A lacks the part through the input",
            slipped(hold_slope_lost)},
           {"F", "hold_by_step_is_one", "zero-order hold: d.dt through the input is Euler's",
            slipped(hold_by_step_is_one)},
           {"F", "carried_into_next_sequence", "dh of a sequence goes on in the next one of the batch",
            slipped(carried_into_next_sequence)},
           {"F", "last_decay_lost", "d.h lacks the decay of the first token", slipped(last_decay_lost)}}));
}

void add_duality_faults(std::vector<Mutant>& out) {
  using enum DualitySlip;
  add_faults(
      out, "cpu.state_space_duality.backward.chunked",
      with_sums(
          {{"F", "final_cotangent_ignored", "d.S of the state that is handed on counts as zero",
            misread(last_state_ignored("d.S"))},
           {"F", "state_counts_as_zero", "the state that came in is not read", misread(filled("S", 0.0F))},
           {"F", "skip_has_no_gradient", "d.skip is zero", miswritten(without_gradient("d.skip"))},
           {"F", "no_bias_back", "dt_bias is left out", misread(filled("dt_bias", 0.0F))},
           {"F", "decay_lost", "dS is handed to the token before without the decay", slipped(decay_lost)},
           {"F", "decay_of_the_token_before", "dS decays as the state before the token did",
            slipped(decay_of_the_token_before)},
           {"F", "skip_without_input_gradient", "d.x lacks the skip", slipped(skip_without_input_gradient)},
           {"F", "step_slope_lost", "d.dt lacks the derivative of the softplus", slipped(step_slope_lost)},
           {"F", "rate_without_itself", "d.A_log is the gradient of A", slipped(rate_without_itself)},
           {"F", "rate_without_step", "the gradient of A lacks Delta", slipped(rate_without_step)},
           {"F", "write_without_step_gradient", "d.dt lacks the part through the write",
            slipped(write_without_step_gradient)},
           {"F", "decay_without_step_gradient", "d.dt lacks the part through the decay",
            slipped(decay_without_step_gradient)},
           {"F", "input_without_step", "d.x lacks Delta", slipped(input_without_step)},
           {"F", "heads_overwritten", "d.B and d.C of a group are those of its last head",
            slipped(heads_overwritten)},
           {"F", "last_token_of_chunk_lost", "the cotangent of a chunk's last token does not reach the state",
            slipped(last_token_of_chunk_lost)},
           {"F", "state_of_the_chunk_before", "states are made again from the start of the chunk before",
            slipped(state_of_the_chunk_before)},
           {"F", "state_after_for_state_before",
            "gradients of the decay are made of the state behind the token",
            slipped(state_after_for_state_before)},
           {"F", "carried_into_next_sequence", "dS of a sequence goes on in the next one of the batch",
            slipped(carried_into_next_sequence)},
           {"F", "last_decay_lost", "d.S lacks the decay of the first token", slipped(last_decay_lost)}}));
}

}  // namespace

std::vector<Mutant> scan_gradient_mutants() {
  std::vector<Mutant> out;
  add_scan_faults(out);
  add_duality_faults(out);
  return out;
}

}  // namespace samestate::mutants
