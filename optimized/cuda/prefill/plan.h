#pragma once

#include <algorithm>
#include <cstdint>

#include "optimized/cuda/prefill/block.cuh"
#include "optimized/kernel.h"

/// The host's half of the prefill kernels; needs no device.
namespace samestate::cuda {

/// Whether the fields that the chunked form reads are those of bf16_fused.
[[nodiscard]] inline bool keeps_prefill_contract(const Contract& c) {
  for (const Format format :
       {c.input, c.residual, c.T, c.state_operand, c.v_new, c.v_decayed, c.P, c.output}) {
    if (format != Format::bf16) return false;
  }
  for (const Format format : {c.beta_k, c.k_decayed, c.q_decayed, c.beta_v, c.beta_exp_k, c.U, c.W}) {
    if (format != Format::none) return false;
  }
  return (c.qk == Format::fp32 || c.qk == Format::bf16) && c.A == Format::fp32 && c.state == Format::fp32 &&
         c.inverse == Inverse::block8 && c.inverse_operand == Format::tf32 && !c.beta_in_T && c.scale_in_P &&
         c.scan == Scan::tree && c.norm == Norm::factor && c.accumulator == Accumulator::tensor_core &&
         c.exponential == Exponential::ex2;
}

/// `tokens`: rows of q, of all sequences. The pairs whose blocks stand together are as many as the device's
/// multiprocessors hold at once.
[[nodiscard]] inline Prefill plan_prefill(const Parameters<Bf16>& p, int multiprocessors) {
  Prefill c;
  c.p = p;
  c.bulk = p.dk % 8 == 0 && p.dv % 8 == 0 && p.chunk == kChunk;
  c.group = std::max(1, multiprocessors / (kHelpers + c.value_tiles()));
  c.group = static_cast<int>(std::min<std::int64_t>(c.group, std::max<std::int64_t>(c.items(), 1)));
  return c;
}

}  // namespace samestate::cuda
