#pragma once

#include <array>

#include "optimized/cuda/host/dispatch.h"
#include "reference/contract.h"

/// Chooses the kernel that evaluates a call of the chunked form (docs/kernels.md, Prefill, has the
/// measurements).
namespace samestate::cuda {

/// The generic kernel: contract fp32 (FFMA, expf) or bf16 (mma.sync with fp32 sums, ex2.approx).
[[nodiscard]] inline bool keeps_chunked(const Contract& c) {
  const bool bf16 = c.output == Format::bf16;
  const Format operand = bf16 ? Format::bf16 : Format::fp32;
  if (c.output != operand || c.input != operand || c.state != Format::fp32) return false;
  if (c.qk != Format::fp32 && c.qk != operand) return false;
  if (c.exponential != (bf16 ? Exponential::ex2 : Exponential::exact)) return false;
  for (const Format format :
       {c.T, c.beta_v, c.beta_exp_k, c.U, c.W, c.state_operand, c.v_new, c.v_decayed, c.P}) {
    if (format != operand) return false;
  }
  for (const Format format : {c.beta_k, c.k_decayed, c.q_decayed, c.residual}) {
    if (format != Format::none) return false;
  }
  return c.A == Format::fp32 && c.inverse == Inverse::substitution && !c.beta_in_T && !c.scale_in_P &&
         c.norm == Norm::operand && c.scan == Scan::sequential &&
         c.accumulator == (bf16 ? Accumulator::tensor_core : Accumulator::fp32);
}

/// True if the fields that the chunked form reads are those of bf16_fused, tf32_fused or fp32_fused,
/// depending on the format of operands.
[[nodiscard]] inline bool keeps_fused(const Contract& c, Format operand) {
  const bool tensor_cores = operand != Format::fp32;
  const Format stored = operand == Format::bf16 ? Format::bf16 : Format::fp32;
  for (const Format format : {c.residual, c.T, c.state_operand, c.v_new, c.v_decayed, c.P}) {
    if (format != operand) return false;
  }
  for (const Format format : {c.beta_k, c.k_decayed, c.q_decayed, c.beta_v, c.beta_exp_k, c.U, c.W}) {
    if (format != Format::none) return false;
  }
  return c.input == stored && c.output == stored &&
         c.qk == (operand == Format::tf32 ? Format::tf32 : Format::fp32) && c.A == Format::fp32 &&
         c.state == Format::fp32 && c.inverse == Inverse::block8 &&
         c.inverse_operand == (tensor_cores ? Format::tf32 : Format::fp32) && !c.beta_in_T && c.scale_in_P &&
         c.scan == Scan::tree && c.norm == Norm::factor &&
         c.accumulator == (tensor_cores ? Accumulator::tensor_core : Accumulator::fp32) &&
         c.exponential == (tensor_cores ? Exponential::ex2 : Exponential::exact);
}
[[nodiscard]] inline bool keeps_prefill(const Contract& c) { return keeps_fused(c, Format::bf16); }
[[nodiscard]] inline bool keeps_mma(const Contract& c) { return keeps_fused(c, Format::tf32); }
[[nodiscard]] inline bool keeps_simt(const Contract& c) { return keeps_fused(c, Format::fp32); }

inline constexpr std::int64_t kPrefillKeys = 128;
enum ChunkedRow : std::size_t { kFused128Row, kFused64Row, kSplitRow, kMmaRow, kSimtRow, kGenericChunkedRow };

[[nodiscard]] inline std::span<const DispatchRow> chunked_rows() {
  static constexpr Range kKeys{1, kPrefillKeys};
  // 132 multiprocessors with 64 value columns each run at once. With sequences of unequal length, the longest
  // sets the pace of a block, and their sum that of the device.
  static constexpr Range kMany{132 * 64 + 1, Range::kAny};
  const auto keys = [](Range columns, Limits::Rule rule) {
    Limits limits;
    limits.dk = kKeys;
    limits.busy_columns = columns;
    limits.rule = rule;
    return limits;
  };
  static const std::array<DispatchRow, 6> rows = {{
      {"prefill, fused 128", "bf16_fused", keeps_prefill, keys(kMany, Limits::Rule::any),
       "a block prepares T and P for 128 columns of S: K, Q once; fastest where the multiprocessors are "
       "full"},
      {"prefill, fused 64", "bf16_fused", keeps_prefill, keys({}, Limits::Rule::decay),
       "P is cheap: twice the blocks, each with what it needs"},
      {"prefill, split", "bf16_fused", keeps_prefill, keys({}, Limits::Rule::any),
       "few heads: T and P by helper blocks through L2"},
      {"mma, two launches", "tf32_fused", keeps_mma, keys({}, Limits::Rule::any),
       "mma.sync in tf32: T and P of all chunks at once, then 32 columns of S a block"},
      {"simt, two launches", "fp32_fused", keeps_simt, keys({}, Limits::Rule::any),
       "FMAs: T and P of all chunks at once, then 32 columns of S a block"},
      {"chunked", "fp32 bf16", keeps_chunked, Limits{}, "mma.sync or FFMA in shared memory; every shape"},
  }};
  return rows;
}

}  // namespace samestate::cuda
