#include <algorithm>
#include <functional>
#include <memory>
#include <utility>

#include "fuzz/mutants/family/rows.h"
#include "optimized/call_kernel.h"
#include "optimized/cpu/backward/chunked.h"

/// Faults of backward passes in chunks: terms that are easily lost, cotangents that are ignored, sums in the wrong
/// direction or over the wrong rows, and roundings that no kernel has.
namespace samestate::mutants {
namespace {

using cpu::BackwardGroup;
using cpu::BackwardHead;
using cpu::BackwardPoint;
using cpu::Block;
using cpu::ChunkedBackward;

struct FinalCotangentIgnored : ChunkedBackward {
  using ChunkedBackward::ChunkedBackward;
  void load_final_cotangent(const BackwardHead& head) override {
    ChunkedBackward::load_final_cotangent(head);
    std::ranges::fill(D_.values, 0.0F);
  }
};

/// The cotangent of the state passes through a chunk as if it did not decay.
struct StateCotangentKept : ChunkedBackward {
  using ChunkedBackward::ChunkedBackward;
  void state_cotangent() override {
    from_start_[static_cast<std::size_t>(L_ - 1)] = 1.0F;
    ChunkedBackward::state_cotangent();
  }
};

struct ScaleTwice : ChunkedBackward {
  using ChunkedBackward::ChunkedBackward;
  void query_gradient() override {
    ChunkedBackward::query_gradient();
    cpu::scale_block(arguments_.scale, dQ_);
  }
};

struct LastTokenLost : ChunkedBackward {
  using ChunkedBackward::ChunkedBackward;
  float gate_of_last_token() override { return 0.0F; }
};

struct GateOfALost : ChunkedBackward {
  using ChunkedBackward::ChunkedBackward;
  void gate_through_A() override {}
};

struct GateOfWLost : ChunkedBackward {
  using ChunkedBackward::ChunkedBackward;
  float gate_through_W(std::int64_t) const override { return 0.0F; }
};

struct GateSummedForward : ChunkedBackward {
  using ChunkedBackward::ChunkedBackward;
  void sum_gates() override {
    for (std::int64_t i = 1; i < L_; ++i)
      dG_[static_cast<std::size_t>(i)] += dG_[static_cast<std::size_t>(i - 1)];
  }
};

struct GateOfNextToken : ChunkedBackward {
  using ChunkedBackward::ChunkedBackward;
  void sum_gates() override {
    ChunkedBackward::sum_gates();
    const auto end = dG_.begin() + L_;
    std::rotate(dG_.begin(), std::min(dG_.begin() + 1, end), end);
  }
};

struct BetaOfALost : ChunkedBackward {
  using ChunkedBackward::ChunkedBackward;
  float beta_through_A(std::int64_t) const override { return 0.0F; }
};

struct BetaOfWLost : ChunkedBackward {
  using ChunkedBackward::ChunkedBackward;
  float beta_through_W(std::int64_t) const override { return 0.0F; }
};

struct BetaHalved : ChunkedBackward {
  using ChunkedBackward::ChunkedBackward;
  float beta_through_U(std::int64_t i) const override { return 0.5F * ChunkedBackward::beta_through_U(i); }
};

struct TransposedKeysLost : ChunkedBackward {
  using ChunkedBackward::ChunkedBackward;
  void key_through_A_columns() override {}
};

struct KeysOfALost : ChunkedBackward {
  using ChunkedBackward::ChunkedBackward;
  void key_through_A_rows() override {}
};

/// The gradient of a key head is that of its last value head.
struct OneHeadOfGroup : ChunkedBackward {
  using ChunkedBackward::ChunkedBackward;
  void add_to_group(const Block& part, std::int64_t first, Block& sum) const override {
    for (std::int64_t i = 0; i < part.rows; ++i) std::fill_n(sum.row(first + i), part.stride, 0.0F);
    ChunkedBackward::add_to_group(part, first, sum);
  }
};

/// The gradients of the sums of g are kept in 16 bits before they are added up.
struct GatesInSixteenBits : ChunkedBackward {
  using ChunkedBackward::ChunkedBackward;
  Format format_at(BackwardPoint point) const override {
    return point == BackwardPoint::dG ? Format::bf16 : ChunkedBackward::format_at(point);
  }
};

/// <S, D> of the last token of a chunk is multiplied and summed in 16 bits.
struct LastTokenInSixteenBits : ChunkedBackward {
  using ChunkedBackward::ChunkedBackward;
  Format format_at(BackwardPoint point) const override {
    return point == BackwardPoint::dG_last ? Format::bf16 : ChunkedBackward::format_at(point);
  }
};

/// Runs a call on a kernel that has the fault.
using RunCall = std::function<Outcome(const cpu::System&, const KernelCall&, const Contract&)>;

template <class Fault>
Outcome run_with(const cpu::System& system, const KernelCall& call, const Contract& contract) {
  return cpu::run_chunked_backward_with(
      [](const auto&... arguments) { return std::make_unique<Fault>(arguments...); }, system, call, contract);
}

Outcome without_initial_state(const cpu::System& system, const KernelCall& call, const Contract& contract) {
  KernelCall other = call;
  std::erase_if(other.inputs, [](const CallTensor& x) { return x.name == "initial_state"; });
  return run_with<ChunkedBackward>(system, other, contract);
}

Outcome in_the_other_map(const cpu::System& system, const KernelCall& call, const Contract& contract) {
  KernelCall other = call;
  other.set("tiled", 0.0);
  return run_with<ChunkedBackward>(system, other, contract);
}

/// A kernel that writes whole tensors fills the rows of tokens that belong to no sequence.
Outcome unowned_rows_zeroed(const cpu::System& system, const KernelCall& call, const Contract& contract) {
  Outcome outcome = run_with<ChunkedBackward>(system, call, contract);
  if (!call.cu_seqlens.present()) return outcome;
  const View<float, 4> dk = call.view<float, 4>("d.k");
  const std::int64_t end = call.cu_seqlens(call.cu_seqlens.shape[0] - 1);
  for (std::int64_t t = end; dk.present() && t < dk.shape[1]; ++t) {
    for (std::int64_t h = 0; h < dk.shape[2]; ++h) std::fill_n(&dk(0, t, h, 0), dk.shape[3], 0.0F);
  }
  return outcome;
}

struct Fault {
  const char* name;
  const char* summary;
  unsigned systems;
  RunCall run;
  std::vector<std::string> contracts = {"fp32", "bf16"};
};

std::vector<Fault> faults() {
  return {
      {"final_cotangent_ignored", "the cotangent of the final state counts as zero", kAll,
       run_with<FinalCotangentIgnored>},
      {"state_cotangent_kept", "the cotangent of the state does not decay on its way back", kGated,
       run_with<StateCotangentKept>},
      {"scale_twice_in_query_gradient", "d.q has the scale twice", kAll, run_with<ScaleTwice>},
      {"gate_of_last_token_lost", "d.g lacks what the chunk's last token adds: <S, D> and the keys' part",
       kGated, run_with<LastTokenLost>},
      {"gate_of_a_lost", "d.g lacks the row sums minus column sums of dA o A", kGatedDelta,
       run_with<GateOfALost>},
      {"gate_of_w_lost", "d.g lacks its part through W", kGatedDelta, run_with<GateOfWLost>},
      {"gate_summed_forward", "d.g sums from the chunk's start instead of to its end", kGated,
       run_with<GateSummedForward>},
      {"gate_of_next_token", "d.g of a token is that of the next one in the chunk", kGated,
       run_with<GateOfNextToken>},
      {"beta_of_a_lost", "d.beta lacks its part through A", kDeltas, run_with<BetaOfALost>},
      {"beta_of_w_lost", "d.beta lacks its part through W", kDeltas, run_with<BetaOfWLost>},
      {"beta_halved", "d.beta has half of its part through U", kDeltas, run_with<BetaHalved>},
      {"transposed_keys_lost", "d.k lacks dA^T (beta k)", kDeltas, run_with<TransposedKeysLost>},
      {"keys_of_a_lost", "d.k lacks beta dA k", kDeltas, run_with<KeysOfALost>},
      {"one_head_of_group", "d.q and d.k are those of one value head, not the sum over its group", kAll,
       run_with<OneHeadOfGroup>},
      {"gates_in_sixteen_bits", "the gradients of the sums of g are rounded to bf16 before they are added up",
       kGated, run_with<GatesInSixteenBits>, kOnlyBf16},
      {"last_token_in_sixteen_bits", "<S, D> of a chunk's last token is multiplied and summed in bf16",
       kGated, run_with<LastTokenInSixteenBits>, kOnlyBf16},
      {"initial_state_forgotten", "the forward pass is made again without the initial state", kAll,
       without_initial_state},
      {"tiled_map_ignored", "value heads read the key heads of the interleaved map", kAll, in_the_other_map},
      {"unowned_rows_zeroed", "rows behind the last packed sequence are overwritten with zeros", kAll,
       unowned_rows_zeroed},
  };
}

}  // namespace

std::vector<Mutant> backward_mutants() {
  std::vector<Mutant> all;
  for (const Fault& fault : faults()) {
    for (unsigned one = 1; one <= kLinear; one *= 2) {
      if ((fault.systems & one) == 0) continue;
      const cpu::System& system = system_of(one);
      Mutant m;
      m.bug = "F";
      m.fault = fault.name;
      m.system = std::string(system.name) + ".backward";
      m.form = "chunked";
      m.name = m.fault + "." + m.system + "." + m.form;
      m.summary = fault.summary;
      CallKernel row{"mutant." + m.name, m.system, m.form, "cpu", fault.contracts};
      row.run = [run = fault.run, &system](const KernelCall& call, const Contract& contract) {
        return run(system, call, contract);
      };
      m.calls.push_back(std::move(row));
      all.push_back(std::move(m));
    }
  }
  return all;
}

}  // namespace samestate::mutants
