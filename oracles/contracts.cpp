#include "oracles/contracts.h"

#include <string>
#include <vector>

#include "reference/error.h"

namespace samestate {
namespace {

/// FLA-like tensor-core kernel in a 16-bit format (BOUNDS 1, last column): every operand and every stored
/// intermediate is rounded, sums and the state stay in fp32.
Contract sixteen_bit(std::string name, Format format) {
  Contract c;
  c.name = std::move(name);
  c.input = format;
  for (Format Contract::*field :
       {&Contract::T, &Contract::beta_v, &Contract::beta_exp_k, &Contract::U, &Contract::W,
        &Contract::state_operand, &Contract::v_new, &Contract::v_decayed, &Contract::P, &Contract::output}) {
    c.*field = format;
  }
  c.accumulator = Accumulator::tensor_core;
  c.exponential = Exponential::ex2;
  return c;
}

/// fp32 storage, operands rounded to tf32 by the tensor core (or by cutting bits off where no conversion is
/// issued).
Contract tensor_float(std::string name, Format format) {
  Contract c;
  c.name = std::move(name);
  for (Format Contract::*field :
       {&Contract::qk, &Contract::T, &Contract::beta_v, &Contract::beta_exp_k, &Contract::W,
        &Contract::state_operand, &Contract::v_new, &Contract::v_decayed, &Contract::P}) {
    c.*field = format;
  }
  c.accumulator = Accumulator::tensor_core;
  c.exponential = Exponential::ex2;
  return c;
}

/// The points of the fused kernels: state first, the inverse from 8 x 8 blocks merged in tf32, a tree-shaped
/// sum of g, the l2norm and the scale as factors of fp32 sums, decode from the state before the token.
Contract fused(Contract c, std::string name, Format format) {
  c.name = std::move(name);
  c.residual = format;
  c.beta_v = c.beta_exp_k = c.U = c.W = Format::none;
  c.inverse = Inverse::block8;
  c.inverse_operand = format == Format::fp32 ? Format::fp32 : Format::tf32;
  c.scan = Scan::tree;
  c.norm = Norm::factor;
  c.scale_in_P = c.reads_old_state = true;
  return c;
}

template <class Change>
Contract with(Contract c, Change&& change) {
  change(c);
  return c;
}

std::vector<NamedContract> make_table() {
  const auto bf16 = [](std::string name) { return sixteen_bit(std::move(name), Format::bf16); };
  return {
      {Contract{}, "fp32 everywhere, sums in any order, sequential cumulative sum of g"},
      {with(Contract{}, [](Contract& c) { c.name = "fp32_tree", c.scan = Scan::tree; }),
       "fp32 with a tree-shaped cumulative sum of g"},
      {tensor_float("tf32", Format::tf32),
       "fp32 storage, tf32 operands rounded to nearest, tensor-core sums"},
      {with(tensor_float("tf32_block16", Format::tf32),
            [](Contract& c) { c.inverse = Inverse::block16, c.inverse_operand = Format::tf32; }),
       "tf32 with a 16 x 16 blocked inverse merged in tf32"},
      {tensor_float("tf32_truncated", Format::tf32_truncated), "tf32 operands cut off instead of rounded"},
      {sixteen_bit("fp16", Format::fp16),
       "fp16 operands, storage and output, fp32 state; overflow is predicted"},
      {bf16("bf16"), "bf16 operands, storage and output, fp32 state and sums: the FLA-like kernel"},
      {with(bf16("bf16_beta_in_T"), [](Contract& c) { c.beta_in_T = true; }),
       "bf16 with T diag(beta) stored"},
      {with(bf16("bf16_k_decayed"), [](Contract& c) { c.k_decayed = c.q_decayed = c.beta_k = Format::bf16; }),
       "bf16 with the decay on K and q operands and a rounded beta k"},
      {with(bf16("bf16_block16_tf32"),
            [](Contract& c) { c.inverse = Inverse::block16, c.inverse_operand = Format::tf32; }),
       "bf16 with a blocked inverse merged in tf32"},
      {with(bf16("bf16_block16_bf16"),
            [](Contract& c) { c.inverse = Inverse::block16, c.inverse_operand = Format::bf16; }),
       "bf16 with a blocked inverse merged in bf16"},
      {with(bf16("bf16_u_fp32"), [](Contract& c) { c.U = Format::fp32; }), "bf16 with U kept in fp32"},
      {with(bf16("bf16_out_fp32"), [](Contract& c) { c.output = Format::fp32; }), "bf16 with an fp32 output"},
      {with(bf16("bf16_state"), [](Contract& c) { c.state = Format::bf16; }),
       "bf16 whose state is stored in bf16 between chunks or steps"},
      {with(sixteen_bit("fp16_state", Format::fp16), [](Contract& c) { c.state = Format::fp16; }),
       "fp16 whose state is stored in fp16"},
      {with(bf16("bf16_state_out_fp32"),
            [](Contract& c) { c.state = Format::bf16, c.output = Format::fp32; }),
       "bf16 state, fp32 output"},
      {fused(Contract{}, "fp32_fused", Format::fp32), "fp32 in the order of the fused kernels"},
      {fused(tensor_float("tf32_fused", Format::tf32), "tf32_fused", Format::tf32),
       "tf32 operands, state first with beta in the residual: the fused kernels"},
      {fused(bf16("bf16"), "bf16_fused", Format::bf16),
       "bf16, state first with beta in the residual, decode from the old state: the fused kernels"},
      {with(fused(bf16("bf16"), "bf16_fused_state", Format::bf16),
            [](Contract& c) { c.state = Format::bf16; }),
       "bf16_fused whose state is stored in bf16 between chunks or steps"},
  };
}

const std::vector<NamedContract>& table() {
  static const std::vector<NamedContract> rows = make_table();
  return rows;
}

bool below_fp32(Format format) {
  return format == Format::tf32 || format == Format::tf32_truncated || format == Format::bf16 ||
         format == Format::fp16;
}

}  // namespace

std::span<const NamedContract> contracts() { return table(); }

const Contract& contract_named(std::string_view name) {
  std::string known;
  for (const NamedContract& row : table()) {
    if (row.contract.name == name) return row.contract;
    known += (known.empty() ? "" : ", ") + row.contract.name;
  }
  throw Error("contract=" + std::string(name) + ": no such contract; known: " + known);
}

bool low_precision(const Contract& c) {
  for (Format format :
       {c.qk, c.beta_k, c.A, c.T, c.beta_v, c.beta_exp_k, c.residual, c.U, c.W, c.state_operand, c.v_new,
        c.v_decayed, c.k_decayed, c.P, c.q_decayed, c.state, c.output}) {
    if (below_fp32(format)) return true;
  }
  return false;
}

bool low_precision_state(const Contract& c) { return below_fp32(c.state); }

Contract recurrent_contract(const Contract& c) {
  Contract r;
  r.name = c.name;
  r.input = c.input;
  // A recurrent kernel feeds no matrix unit, so q and k are rounded only where a kernel stores them again (16
  // bit).
  r.qk = c.qk == Format::bf16 || c.qk == Format::fp16 ? c.qk : Format::fp32;
  r.state = c.state;
  r.output = c.output;
  r.exponential = c.exponential;
  r.accumulator = Accumulator::fp32;
  r.norm = c.norm;
  r.reads_old_state = c.reads_old_state;
  return r;
}

Contract with_l2norm(const Contract& c) {
  Contract r = c;
  if (c.norm == Norm::operand && (c.input == Format::bf16 || c.input == Format::fp16)) r.qk = c.input;
  return r;
}

Contract sums_only(const Contract& c) {
  Contract r;
  r.name = c.name;
  r.input = c.input;
  r.accumulator = c.accumulator;
  r.exponential = c.exponential;
  r.scan = c.scan;
  if (c.residual != Format::none) r.residual = Format::fp32;
  r.norm = c.norm;
  r.scale_in_P = c.scale_in_P;
  r.reads_old_state = c.reads_old_state;
  return r;
}

}  // namespace samestate
