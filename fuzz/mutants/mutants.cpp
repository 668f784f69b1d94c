#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "fuzz/mutants/family/fused.h"
#include "fuzz/mutants/family/over_ranks.h"
#include "fuzz/mutants/family/rows.h"
#include "fuzz/mutants/operators/changed_call.h"
#include "reference/error.h"

namespace samestate {
namespace {

using namespace mutants;

/// Marks what CI runs: every fault once, of the gated delta rule if it has the fault, else of the system that
/// has it first, in one of the system's forms after the other; and all adversaries. The slow ones are left to
/// the full run.
void mark_smoke(std::vector<Mutant>& all) {
  static const std::set<std::string_view> kSlow = {"sleeps", "long_sequence_tail_lost", "grid_of_65535"};
  std::map<std::string_view, std::vector<Mutant*>> of_fault;
  for (const bool preferred : {true, false}) {
    for (Mutant& m : all) {
      if (!m.equivalent.empty() || kSlow.contains(m.fault)) continue;
      if (preferred != (m.system == "gated_delta_rule")) continue;
      m.smoke = m.bug == "H1.7";
      std::vector<Mutant*>& same = of_fault[m.fault];
      if (same.empty() || same.front()->system == m.system) same.push_back(&m);
    }
  }
  std::size_t turn = 0;
  for (const auto& [fault, forms] : of_fault) forms[turn++ % forms.size()]->smoke = true;
}

std::vector<Mutant> make_table() {
  std::vector<Mutant> all;
  for (auto make : {decay_mutants,
                    delta_mutants,
                    state_mutants,
                    layout_mutants,
                    interface_mutants,
                    precision_mutants,
                    fused_mutants,
                    ranks_mutants,
                    heads_mutants,
                    backward_mutants,
                    adversaries,
                    operator_gradient_mutants,
                    operator_interface_mutants,
                    packed_mutants,
                    activation_gates_mutants, channel_gate_mutants,
                    dendritic_mutants,
                    dendritic_precision_mutants,
                    gated_delta_net_mutants,
                    gated_delta_net_precision_mutants,
                    gated_delta_step_mutants,
                    latent_attention_mutants,
                    linear_attention_mutants,
                    mamba_mutants,
                    mixture_of_experts_mutants,
                    norms_mutants,
                    retnet_mutants,
                    rotary_embedding_mutants,
                    short_convolution_mutants,
                    softmax_attention_mutants,
                    state_space_mutants,
                    test_time_training_mutants,
                    tf32_mutants}) {
    for (Mutant& m : make()) all.push_back(std::move(m));
  }
  // M01..M90 come first, then faults that are not known to have shipped, then the subjects of the harness.
  static constexpr std::string_view kOrder = "MFH";
  std::stable_sort(all.begin(), all.end(), [](const Mutant& x, const Mutant& y) {
    return std::pair(kOrder.find(x.bug[0]), x.bug) < std::pair(kOrder.find(y.bug[0]), y.bug);
  });
  mark_smoke(all);
  return all;
}

constexpr std::array kNotModelled = {
    NotModelled{"M73", "gradients of one compiler on one architecture: there is no backward kernel"},
};

}  // namespace

std::span<const Mutant> all_mutants() {
  static const std::vector<Mutant> table = make_table();
  return table;
}

const Mutant& mutant_named(std::string_view name) {
  std::string near;
  for (const Mutant& m : all_mutants()) {
    if (m.name == name) return m;
    if (m.name.find(name) != std::string::npos || m.fault == name.substr(0, name.find('.')))
      near += (near.empty() ? "" : ", ") + m.name;
  }
  throw Error(fmt::format("mutant {}: no such mutant; {}", name,
                          near.empty() ? "`samestate list mutants` shows them" : "did you mean " + near));
}

std::span<const NotModelled> not_modelled() { return kNotModelled; }

std::span<const Kernel> unmutated_kernels() {
  static const std::vector<Kernel> rows = [] {
    std::vector<Kernel> all;
    const std::vector<std::string> contracts = Entry{"", "", ""}.contracts;
    for (unsigned system = 1; system <= kLinear; system *= 2) {
      all.push_back(kernel_of<Chunked>(system_of(system), "evaluator", contracts));
      all.push_back(kernel_of<Recurrent>(system_of(system), "evaluator", contracts));
      all.push_back(kernel_of<OverRanks>(system_of(system), "evaluator", {"fp32", "bf16"}));
      all.push_back(unmutated_over_heads(system_of(system)));
      const std::vector<std::string> fused = {"fp32_fused", "tf32_fused", "bf16_fused", "bf16_fused_state"};
      all.push_back(kernel_of<FusedChunked>(system_of(system), "evaluator_fused", fused));
      all.push_back(kernel_of<FusedRecurrent>(system_of(system), "evaluator_fused", fused));
    }
    return all;
  }();
  return rows;
}

}  // namespace samestate
