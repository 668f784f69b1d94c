/// Scripts of `repro --script` for tests/cli/script_test.sh: of mutants, which fail, and of the right kernels on the same
/// cases, which pass. usage: mutant_scripts FOLDER
#include <fmt/format.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "fuzz/mutants/mutant.h"
#include "harness/script/script.h"
#include "optimized/kernel.h"
#include "optimized/operator_kernel.h"

namespace samestate {
namespace {

struct Row {
  std::string_view mutant, line;
};

/// Every system that has a numpy text, two whose expectation is embedded, contracts of 16 bit, packed, grouped and tiled heads,
/// decoding, an exact regime, laws of both kinds of systems.
constexpr std::array kRows = {
    Row{"no_decay.gated_delta_rule.chunked",
        "v1 gated_delta_rule chunk=16 T=40 Hk=2 Hv=4 dk=16 dv=8 state=random"},
    Row{"beta_twice.gated_delta_rule.recurrent",
        "v1 gated_delta_rule form=recurrent T=33 Hk=2 Hv=4 dk=16 dv=8 contract=bf16 l2norm=1"},
    Row{"beta_not_on_value.delta_rule.chunked",
        "v1 delta_rule form=packed chunk=16 lengths=0,17,1,30 Hk=1 Hv=2 dk=8 dv=8 state=random"},
    Row{"state_not_decayed.retention.chunked", "v1 retention chunk=16 T=50 B=2 dk=16 dv=8 state=random"},
    Row{"state_of_other_split.linear_attention.chunked",
        "v1 linear_attention chunk=8 T=40 dk=8 dv=8 regime=exact"},
    Row{"gate_as_multiplier.retention.recurrent",
        "v1 retention form=decode prefill=9 T=14 chunk=4 dk=8 dv=8 state=random"},
    Row{"error_before_decay.gated_delta_rule.chunked",
        "v1 gated_delta_rule chunk=16 T=20 dk=16 dv=8 Hk=2 Hv=6 heads=tiled l2norm=1 scale=2"},
    Row{"rate_inverted.activation_gates.branchless", "v1 activation_gates form=branchless T=12"},
    Row{"taps_reversed.short_convolution.scatter", "v1 short_convolution form=scatter T=13 B=2 bias=1"},
    Row{"mask_off_by_one.softmax_attention.online", "v1 softmax_attention form=online chunk=8 T=21"},
    Row{"skip_after_gate.selective_scan.chunked", "v1 selective_scan form=chunked chunk=8 T=21 hold=1"},
    Row{"state_not_read.selective_scan.blelloch", "v1 selective_scan form=decode prefill=9 T=14"},
    Row{"state_transposed.state_space_duality.chunked", "v1 state_space_duality form=chunked chunk=8 T=21"},
    Row{"normaliser_per_chunk.linear_attention_normalised.chunked",
        "v1 linear_attention_normalised form=chunked chunk=8 T=21 dk=8 dv=8"},
    Row{"weight_plus_one.rms_norm.fused", "v1 rms_norm form=fused T=9 contract=bf16"},
    Row{"one_added_twice.zero_centred_rms_norm.fused", "v1 zero_centred_rms_norm form=fused T=9"},
    Row{"weight_without_one.residual_rms_norm.fused", "v1 residual_rms_norm form=fused T=9"},
    Row{"gate_before_norm.gated_rms_norm.fused", "v1 gated_rms_norm form=fused T=9"},
    Row{"norm_before_gate.gate_first_rms_norm.fused", "v1 gate_first_rms_norm form=fused T=9"},
    Row{"epsilon_outside_root.l2norm.fused", "v1 l2norm form=fused T=9 regime=tiny"},
    Row{"always_interleaved.rotary_embedding.full_width", "v1 rotary_embedding form=full_width T=9"},
    Row{"never_normalised.gated_delta_step.expanded", "v1 gated_delta_step form=expanded T=3 B=2"},
    Row{"not_renormalised.mixture_of_experts.sorted", "v1 mixture_of_experts form=sorted T=9"},
    Row{"scale_without_rotary.latent_attention.absorbed", "v1 latent_attention form=absorbed T=9"},
    Row{"packed_run_together.short_convolution.scatter",
        "v1 short_convolution form=packed lengths=5,0,9,1 unowned=2,1 bias=1"},
    Row{"packed_state_of_neighbour.selective_scan.chunked",
        "v1 selective_scan form=packed chunk=8 lengths=5,0,9"},
    Row{"packed_offsets_rounded.state_space_duality.chunked",
        "v1 state_space_duality form=packed chunk=8 lengths=5,0,9"},
    Row{"packed_run_together.softmax_attention.online",
        "v1 softmax_attention form=packed chunk=8 lengths=5,0,9"},
    Row{"packed_run_together.latent_attention.absorbed", "v1 latent_attention form=packed lengths=5,0,9"},
    Row{"state_before_tail.gated_delta_rule.chunked",
        "v1 gated_delta_rule chunk=16 T=35 dk=8 dv=8 B=2 state=random law=split"},
    Row{"normaliser_not_carried.linear_attention_normalised.chunked",
        "v1 linear_attention_normalised form=chunked chunk=8 T=21 B=2 dk=8 dv=8 law=split"},
};

int write_all(const std::filesystem::path& folder) {
  const KernelTable own(kernels(), operator_kernels());
  int wrong = 0;
  const auto write = [&](const std::string& name, Case c, const std::string& kernel, const KernelTable& table,
                         Verdict wanted) {
    c.kernel = kernel;
    Trace trace;
    const Record record = run_case(c, table, 1, &trace);
    const Judgement& j = record.judgement;
    if (j.verdict != wanted) {
      fmt::print("{}: {} {}: {}\n", name, record.line, name_of(j.verdict), j.reason);
      ++wrong;
      return;
    }
    const ScriptWords words{.sentence = wanted == Verdict::fail ? j.reason : "",
                            .repeat = fmt::format("samestate repro '{}'", record.line),
                            .recorded = "a day of this test"};
    try {
      std::ofstream(folder / (name + ".py"), std::ios::binary) << script_of(record, trace, words);
    } catch (const Error& error) {
      fmt::print("{}: {}: {}\n", name, record.line, error.what());
      ++wrong;
    }
  };
  for (std::size_t i = 0; i < kRows.size(); ++i) {
    const Mutant& mutant = mutant_named(kRows[i].mutant);
    const Case c = parse_case(std::string(kRows[i].line));
    write(fmt::format("fails_{:02}", i), c, mutant.kernel(), mutant.table(), Verdict::fail);
    write(fmt::format("passes_{:02}", i), c, fmt::format("cpu.{}.{}", mutant.system, mutant.form), own,
          Verdict::pass);
  }
  fmt::print("{} rows\n", kRows.size());
  return wrong == 0 ? 0 : 1;
}

}  // namespace
}  // namespace samestate

int main(int argc, char** argv) { return argc == 2 ? samestate::write_all(argv[1]) : 2; }
