#pragma once

#include "reference/contract.h"

/// Contracts of the CUDA kernels; the floor of these tests has no table of them.
namespace samestate::testing {

inline Contract bf16() {
  Contract c;
  c.name = "bf16";
  c.input = c.qk = c.T = c.beta_v = c.beta_exp_k = c.U = c.W = c.state_operand = c.v_new = c.v_decayed = c.P =
      c.output = Format::bf16;
  c.accumulator = Accumulator::tensor_core;
  c.exponential = Exponential::ex2;
  return c;
}

/// Returns the contract of the decoding kernels, as the recurrent form sees them.
inline Contract old_state(Format format, Format state = Format::fp32) {
  Contract c;
  c.name = format == Format::bf16 ? "bf16_fused" : "fp32_fused";
  c.input = c.output = format;
  c.state = state;
  c.exponential = format == Format::bf16 ? Exponential::ex2 : Exponential::exact;
  c.norm = Norm::factor;
  c.reads_old_state = true;
  return c;
}

}  // namespace samestate::testing
