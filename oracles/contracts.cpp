#include "oracles/contracts.h"

#include <algorithm>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "oracles/contract_points.h"
#include "oracles/rounding.h"

namespace samestate {
namespace {

/// A named contract in the grammar of contract_points.h, from an earlier row or from fp32 everywhere.
struct Row {
  std::string_view name;
  std::string_view text;
  std::string_view summary;
};

constexpr Row kRows[] = {
    {"fp32", "", "fp32 everywhere, sums in any order, sequential cumulative sum of g"},
    {"fp32_tree", "fp32+scan:tree", "fp32 with a tree-shaped cumulative sum of g"},
    {"tf32",
     "fp32+qk:tf32+T:tf32+beta_v:tf32+beta_exp_k:tf32+W:tf32+state_operand:tf32+v_new:tf32+v_decayed:tf32+P:"
     "tf32"
     "+accumulator:tensor_core+exponential:ex2",
     "fp32 storage, tf32 operands rounded to nearest, tensor-core sums"},
    {"tf32x3",
     "tf32+qk:tf32x3+T:tf32x3+beta_v:tf32x3+beta_exp_k:tf32x3+W:tf32x3+state_operand:tf32x3+v_new:tf32x3"
     "+v_decayed:tf32x3+P:tf32x3",
     "fp32 storage, each product three of tf32 parts (about 21 bits), tensor-core sums"},
    {"tf32_block16", "tf32+inverse:block16/tf32", "tf32 with a 16 x 16 blocked inverse merged in tf32"},
    {"tf32_truncated",
     "tf32+qk:tf32_truncated+T:tf32_truncated+beta_v:tf32_truncated+beta_exp_k:tf32_truncated+W:tf32_"
     "truncated"
     "+state_operand:tf32_truncated+v_new:tf32_truncated+v_decayed:tf32_truncated+P:tf32_truncated",
     "tf32 operands cut off instead of rounded"},
    // A tensor-core kernel in a 16-bit format, like FLA's (BOUNDS 1, last column): every operand and every
    // stored intermediate is rounded; sums and the state stay in fp32.
    {"fp16",
     "fp32+input:fp16+T:fp16+beta_v:fp16+beta_exp_k:fp16+U:fp16+W:fp16+state_operand:fp16+v_new:fp16"
     "+v_decayed:fp16+P:fp16+output:fp16+accumulator:tensor_core+exponential:ex2",
     "fp16 operands, storage and output, fp32 state; overflow is predicted"},
    {"bf16",
     "fp32+input:bf16+T:bf16+beta_v:bf16+beta_exp_k:bf16+U:bf16+W:bf16+state_operand:bf16+v_new:bf16"
     "+v_decayed:bf16+P:bf16+output:bf16+accumulator:tensor_core+exponential:ex2",
     "bf16 operands, storage and output, fp32 state and sums: the FLA-like kernel"},
    {"bf16_beta_in_T", "bf16+beta_in_T:yes", "bf16 with T diag(beta) stored"},
    {"bf16_k_decayed", "bf16+k_decayed:bf16+q_decayed:bf16+beta_k:bf16",
     "bf16 with the decay on K and q operands and a rounded beta k"},
    {"bf16_block16_tf32", "bf16+inverse:block16/tf32", "bf16 with a blocked inverse merged in tf32"},
    {"bf16_block16_bf16", "bf16+inverse:block16/bf16", "bf16 with a blocked inverse merged in bf16"},
    {"bf16_u_fp32", "bf16+U:fp32", "bf16 with U kept in fp32"},
    {"bf16_out_fp32", "bf16+output:fp32", "bf16 with an fp32 output"},
    {"bf16_state", "bf16+state:bf16", "bf16 whose state is stored in bf16 between chunks or steps"},
    {"fp16_state", "fp16+state:fp16", "fp16 whose state is stored in fp16"},
    {"bf16_state_out_fp32", "bf16+state:bf16+output:fp32", "bf16 state, fp32 output"},
    // The points of the fused kernels: state first, the inverse from 8 x 8 blocks merged in tf32, a tree-shaped
    // sum of g, the l2norm and the scale as factors of fp32 sums, decode from the state before the token.
    {"fp32_fused",
     "fp32+residual:fp32+inverse:block8/fp32+scan:tree+norm:factor+scale_in_P:yes+reads_old_state:yes",
     "fp32 in the order of the fused kernels"},
    {"tf32_fused",
     "tf32+residual:tf32+inverse:block8/tf32+scan:tree+norm:factor+scale_in_P:yes+reads_old_state:yes",
     "tf32 operands, state first with beta in the residual: the fused kernels"},
    {"bf16_fused",
     "bf16+residual:bf16+inverse:block8/"
     "tf32+scan:tree+log2e:gate+norm:factor+scale_in_P:yes+reads_old_state:yes",
     "bf16, state first with beta in the residual, decode from the old state: the fused kernels"},
    {"bf16_fused_state", "bf16_fused+state:bf16",
     "bf16_fused whose state is stored in bf16 between chunks or steps"},
    {"bf16_io", "fp32+input:bf16+output:bf16+norm:unrounded", "bf16 in and out, fp32 inside"},
    {"fp16_io", "fp32+input:fp16+output:fp16+norm:unrounded", "fp16 in and out, fp32 inside"},
};

struct Table {
  std::vector<NamedContract> rows;
  std::vector<Contract> bases;

  Table() {
    for (const Row& row : kRows) {
      Contract c = row.text.empty() ? Contract{} : parse_contract(row.text, bases);
      c.name = row.name;
      rows.push_back({c, row.summary});
      bases.push_back(std::move(c));
    }
  }
};

const Table& table() {
  static const Table all;
  return all;
}

bool below_fp32(Format format) {
  return format == Format::tf32 || format == Format::tf32_truncated || format == Format::bf16 ||
         format == Format::fp16;
}

}  // namespace

std::span<const NamedContract> contracts() { return table().rows; }

const Contract& contract_named(std::string_view name) {
  for (const NamedContract& row : table().rows) {
    if (row.contract.name == name) return row.contract;
  }
  // Other contracts are parsed once, for each text by which they are requested.
  static std::mutex mutex;
  static std::map<std::string, Contract, std::less<>> read;
  const std::scoped_lock lock(mutex);
  if (const auto found = read.find(name); found != read.end()) return found->second;
  Contract c = parse_contract(name, table().bases);
  c.name = format_contract(c, table().bases);
  for (const NamedContract& row : table().rows) {
    if (row.contract.name == c.name) return row.contract;
  }
  return read.emplace(name, std::move(c)).first->second;
}

const Contract& contract_of(Contract points) {
  settle(points);
  return contract_named(format_contract(points, table().bases));
}

std::string nearest_card(std::string_view name) {
  Contract c = contract_named(name);
  c.nearest = true;
  return contract_of(std::move(c)).name;
}

const Contract& exact_contract(std::string_view name) {
  Contract c = contract_named(name);
  if (!c.nearest) return contract_named(name);
  c.nearest = false;
  return contract_of(std::move(c));
}

std::string_view base_of(const Contract& c) { return std::string_view(c.name).substr(0, c.name.find('+')); }

bool low_precision(const Contract& c) {
  for (Format format :
       {c.qk, c.beta_k, c.A, c.T, c.beta_v, c.beta_exp_k, c.residual, c.U, c.W, c.state_operand, c.v_new,
        c.v_decayed, c.k_decayed, c.P, c.q_decayed, c.state, c.output}) {
    if (below_fp32(format)) return true;
  }
  return c.inverse != Inverse::substitution && below_fp32(c.inverse_operand);
}

bool low_precision_state(const Contract& c) { return below_fp32(c.state); }

Contract recurrent_contract(const Contract& c) {
  Contract r;
  r.name = c.name;
  r.input = c.input;
  // A recurrent kernel uses no matrix unit, so q and k are rounded only if a kernel stores them again (16
  // bits).
  r.qk = c.qk == Format::bf16 || c.qk == Format::fp16 ? c.qk : Format::fp32;
  r.state = c.state;
  r.output = c.output;
  r.exponential = c.exponential;
  r.accumulator = Accumulator::fp32;
  r.norm = c.norm;
  r.reads_old_state = c.reads_old_state;
  r.nearest = c.nearest;
  return r;
}

bool recurrent_keeps(const Contract& promised, const Contract& asked, bool l2norm) {
  const auto points = [&](const Contract& c) {
    return std::tuple(c.input, c.qk, c.state, c.output, l2norm ? c.norm : Norm::operand, c.reads_old_state);
  };
  const Contract p = recurrent_contract(promised), a = recurrent_contract(asked);
  return points(p) == points(a) && (p.exponential == a.exponential || p.exponential == Exponential::exact);
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
  r.log2e = c.log2e;
  r.scan = c.scan;
  if (c.residual != Format::none) r.residual = Format::fp32;
  r.norm = c.norm;
  r.scale_in_P = c.scale_in_P;
  r.reads_old_state = c.reads_old_state;
  return r;
}

double largest_format_value(const Contract& c) {
  for (Format f : {c.beta_k, c.A, c.inverse_operand, c.T, c.beta_v, c.beta_exp_k, c.residual, c.U, c.W,
                   c.state_operand, c.v_new, c.v_decayed, c.k_decayed, c.P, c.q_decayed, c.state, c.output}) {
    if (f == Format::fp16) return largest_finite(Format::fp16);
  }
  return largest_finite(Format::fp32);
}

double largest_integer(const Contract& c) {
  double coarsest = unit_roundoff(Format::fp32);
  for (Format f : {c.qk, c.beta_k, c.A, c.inverse_operand, c.T, c.beta_v, c.beta_exp_k, c.residual, c.U, c.W,
                   c.state_operand, c.v_new, c.v_decayed, c.k_decayed, c.P, c.q_decayed}) {
    coarsest = std::max(coarsest, unit_roundoff(whole_in(f)));
  }
  return 1.0 / coarsest;
}

namespace {

bool is_tf32(Format f) { return f == Format::tf32 || f == Format::tf32_truncated; }

}  // namespace

Format unit_operand(const Contract& c) {
  return (is_tf32(c.qk) || c.qk == Format::tf32x3) && c.input == Format::fp32 ? c.qk : Format::none;
}

bool of_tf32(const Contract& c) {
  const auto operands = {c.qk,    c.T,         c.beta_v, c.beta_exp_k, c.residual, c.W, c.state_operand,
                         c.v_new, c.v_decayed, c.P};
  if (is_tf32(c.qk)) return true;
  const bool sixteen = std::any_of(operands.begin(), operands.end(),
                                   [](Format f) { return f == Format::bf16 || f == Format::fp16; });
  return !sixteen && std::any_of(operands.begin(), operands.end(), is_tf32);
}

}  // namespace samestate
