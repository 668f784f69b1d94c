#include "optimized/operator_kernel.h"

#include "optimized/cpu/backward/norms.h"
#include "optimized/cpu/backward/pointwise.h"
#include "optimized/cpu/backward/short_convolution.h"
#include "optimized/cpu/operators/channel_gates.h"
#include "optimized/cpu/operators/activation_gates.h"
#include "optimized/cpu/operators/dendritic_attention.h"
#include "optimized/cpu/operators/dendritic_parts.h"
#include "optimized/cpu/operators/expert_router.h"
#include "optimized/cpu/operators/gated_attention.h"
#include "optimized/cpu/operators/gated_delta_net.h"
#include "optimized/cpu/operators/gated_delta_step.h"
#include "optimized/cpu/operators/group_limited_router.h"
#include "optimized/cpu/operators/latent_attention.h"
#include "optimized/cpu/operators/linear_attention.h"
#include "optimized/cpu/operators/mamba_mixer.h"
#include "optimized/cpu/operators/mixture_of_experts.h"
#include "optimized/cpu/operators/norms.h"
#include "optimized/cpu/operators/retnet.h"
#include "optimized/cpu/operators/rotary_embedding.h"
#include "optimized/cpu/operators/selective_scan.h"
#include "optimized/cpu/operators/short_convolution.h"
#include "optimized/cpu/operators/softmax_attention.h"
#include "optimized/cpu/operators/state_space_duality.h"
#include "optimized/cpu/operators/strided.h"
#include "optimized/cpu/operators/test_time_training.h"
#include "optimized/sequence_by_sequence.h"
#ifdef SAMESTATE_HAVE_CUDA
#include "optimized/cuda/cuda_operator_kernels.h"
#endif

namespace samestate {

// clang-format off
std::span<const OperatorKernel> operator_kernels() {
  using namespace cpu;
  // A form without products on the matrix unit would give the same results under tf32 as under fp32.
  static const std::vector<std::string> all = {"fp32", "bf16", "fp16"};
  static const std::vector<std::string> unit = {"fp32", "tf32", "tf32_truncated", "bf16", "fp16"};
  struct Row {
    const char *name, *system, *form, *device;
    const std::vector<std::string>& contracts;
    Outcome (*run)(const OperatorArguments&, const Contract&);
    std::vector<std::string> limits = {};
    std::vector<std::string> taps = {};
    bool by_itself = false;  ///< reads strides and cu_seqlens: its sums are over all sequences
  };
  const std::vector<std::string> of_gated_delta_net = {"mixed", "z", "b", "a", "convolved", "q", "k", "g", "beta", "gated"};
  const std::vector<std::string> of_dendritic_attention = {"q", "k", "v", "z", "b", "a_gate", "q_expanded", "k_expanded", "q_convolved", "k_convolved", "v_convolved", "g", "beta", "o", "gated"};
  const std::vector<std::string> of_mamba = {"projected", "u", "selected", "dt", "gated"};
  const std::vector<std::string> of_mamba2 = {"projected", "convolved", "y", "normed"};
  const std::vector<std::string> of_multi_scale_retention = {"q", "k", "v", "g", "gated"};
  const std::vector<std::string> of_latent_attention = {"compressed", "compressed_normed", "q", "q_rotary", "q_latent", "mixed", "heads"};
  const std::vector<std::string> of_gated_attention = {"q_gate", "k_projected", "q", "attended"};
  const std::vector<std::string> of_mixture = {"experts", "weights", "hidden", "outputs"};
  const std::vector<std::string> of_qwen3_next_moe = {"logits", "experts", "weights", "hidden", "outputs", "shared_hidden", "shared", "shared_gate_logit"};
  const Row rows[] = {
      {"cpu.linear_attention_bidirectional.state_first", "linear_attention_bidirectional", "state_first", "cpu", unit, linear_attention_state_first},
      {"cpu.linear_attention_normalised.chunked",        "linear_attention_normalised",    "chunked",     "cpu", unit, linear_attention_normalised_chunks},
      {"cpu.normalised_retention.chunked",                "normalised_retention",           "chunked",    "cpu", unit, normalised_retention_chunks},
      {"cpu.normalised_retention_recurrence.core",        "normalised_retention_recurrence", "core",       "cpu", all,  normalised_retention_tokens},
      {"cpu.multi_scale_retention.chunked",               "multi_scale_retention",          "chunked",    "cpu", unit, multi_scale_retention_chunks, {"dk % 2 = 0"}, of_multi_scale_retention},
      {"cpu.activation_gates.branchless",                 "activation_gates",               "branchless", "cpu", all,  activation_gates_branchless},
      {"cpu.rms_norm.fused",                              "rms_norm",                       "fused",      "cpu", all,  rms_norm_fused},
      {"cpu.zero_centred_rms_norm.fused",                 "zero_centred_rms_norm",          "fused",      "cpu", all,  zero_centred_rms_norm_fused},
      {"cpu.residual_rms_norm.fused",                     "residual_rms_norm",              "fused",      "cpu", all,  residual_rms_norm_fused},
      {"cpu.gated_rms_norm.fused",                        "gated_rms_norm",                 "fused",      "cpu", all,  gated_rms_norm_fused},
      {"cpu.gate_first_rms_norm.fused",                   "gate_first_rms_norm",            "fused",      "cpu", all,  gate_first_rms_norm_fused},
      {"cpu.l2norm.fused",                                "l2norm",                         "fused",      "cpu", all,  l2norm_fused},
      {"cpu.short_convolution.scatter",                   "short_convolution",              "scatter",    "cpu", all,  short_convolution_scatter},
      {"cpu.rotary_embedding.full_width",                 "rotary_embedding",               "full_width", "cpu", all,  rotary_embedding_full_width},
      {"cpu.softmax_attention.online",                    "softmax_attention",              "online",     "cpu", unit, softmax_attention_tiles, {"chunk >= 1"}},
      {"cpu.softmax_attention.merged",                    "softmax_attention",              "merged",     "cpu", unit, softmax_attention_split_keys, {"chunk >= 1"}},
      {"cpu.softmax_attention.grouped",                   "softmax_attention",              "grouped",    "cpu", unit, softmax_attention_groups},
      {"cpu.gated_attention.online",                      "gated_attention",                "online",     "cpu", unit, gated_attention_online, {"chunk >= 1"}, of_gated_attention},
      {"cpu.gated_delta_net.chunked",                     "gated_delta_net",                "chunked",    "cpu", unit, gated_delta_net_chunks, {}, of_gated_delta_net},
      {"cpu.gated_delta_step.expanded",                   "gated_delta_step",               "expanded",   "cpu", all,  gated_delta_step_expanded},
      {"cpu.kimi_delta_attention.recurrent",             "kimi_delta_attention",           "recurrent",   "cpu", all,  kimi_delta_attention_recurrent},
      {"cpu.kimi_delta_attention.chunked",               "kimi_delta_attention",           "chunked",     "cpu", all,  kimi_delta_attention_chunks},
      {"cpu.gated_delta_net_2.recurrent",                "gated_delta_net_2",              "recurrent",   "cpu", all,  gated_delta_net_2_recurrent},
      {"cpu.gated_delta_net_2.chunked",                  "gated_delta_net_2",              "chunked",     "cpu", all,  gated_delta_net_2_chunks},
      {"cpu.gated_linear_attention.recurrent",           "gated_linear_attention",         "recurrent",   "cpu", all,  gated_linear_attention_recurrent},
      {"cpu.gated_linear_attention.chunked",             "gated_linear_attention",         "chunked",     "cpu", all,  gated_linear_attention_chunks},
      {"cpu.selective_scan.chunked",                     "selective_scan",                 "chunked",     "cpu", all,  selective_scan_chunks},
      {"cpu.selective_scan.blelloch",                    "selective_scan",                 "blelloch",    "cpu", all,  selective_scan_tree},
      {"cpu.state_space_duality.chunked",                "state_space_duality",            "chunked",     "cpu", unit, state_space_duality_chunks},
      {"cpu.mamba_mixer.chunked",                        "mamba_mixer",                    "chunked",     "cpu", unit, mamba_mixer_chunks, {}, of_mamba},
      {"cpu.mamba2_mixer.chunked",                       "mamba2_mixer",                   "chunked",     "cpu", unit, mamba2_mixer_chunks, {}, of_mamba2},
      {"cpu.gradient_step.delta_rule",                    "gradient_step",                  "delta_rule", "cpu", all,  gradient_steps},
      {"cpu.proximal_step.delta_rule",                    "proximal_step",                  "delta_rule", "cpu", all,  proximal_steps},
      {"cpu.overlap_windows.channels",                    "overlap_windows",                "channels",   "cpu", all,  overlap_windows_channels},
      {"cpu.dendritic_router.chosen",                     "dendritic_router",               "chosen",     "cpu", unit, dendritic_router_chosen},
      {"cpu.dendritic_attention.compacted",               "dendritic_attention",            "compacted",  "cpu", unit, dendritic_attention_compacted, {}, of_dendritic_attention},
      {"cpu.latent_cache.direct",                        "latent_cache",                   "direct",      "cpu", unit, latent_cache_fused, {}, {"projected"}},
      {"cpu.latent_attention.absorbed",                  "latent_attention",               "absorbed",    "cpu", unit, latent_attention_absorbed, {}, of_latent_attention},
      {"cpu.expert_router.logits_first",                 "expert_router",                  "logits_first", "cpu", unit, expert_router_logits_first},
      {"cpu.group_limited_router.ordered",               "group_limited_router",           "ordered",     "cpu", unit, group_limited_router_ordered},
      {"cpu.load_balance.direct",                        "load_balance",                   "direct",      "cpu", all,  load_balance_one_pass},
      {"cpu.mixture_of_experts.sorted",                  "mixture_of_experts",             "sorted",      "cpu", unit, mixture_of_experts_sorted, {}, of_mixture},
      {"cpu.mixture_of_experts.per_token",               "mixture_of_experts",             "per_token",   "cpu", unit, mixture_of_experts_per_token, {}, of_mixture},
      {"cpu.qwen3_next_moe.sorted",                      "qwen3_next_moe",                 "sorted",      "cpu", unit, qwen3_next_moe_sorted, {}, of_qwen3_next_moe},
      {"cpu.gated_delta_net_output.fused",                "gated_delta_net_output",         "fused",      "cpu", unit, gated_delta_net_output_fused},
      {"cpu.rms_norm.backward.fused",                     "rms_norm.backward",              "fused",      "cpu", all,  rms_norm_backward_fused},
      {"cpu.zero_centred_rms_norm.backward.fused",        "zero_centred_rms_norm.backward", "fused",      "cpu", all,  zero_centred_rms_norm_backward_fused},
      {"cpu.residual_rms_norm.backward.fused",            "residual_rms_norm.backward",     "fused",      "cpu", all,  residual_rms_norm_backward_fused},
      {"cpu.gated_rms_norm.backward.fused",               "gated_rms_norm.backward",        "fused",      "cpu", all,  gated_rms_norm_backward_fused},
      {"cpu.gate_first_rms_norm.backward.fused",          "gate_first_rms_norm.backward",   "fused",      "cpu", all,  gate_first_rms_norm_backward_fused},
      {"cpu.l2norm.backward.fused",                       "l2norm.backward",                "fused",      "cpu", all,  l2norm_backward_fused},
      {"cpu.activation_gates.backward.branchless",        "activation_gates.backward",      "branchless", "cpu", all,  activation_gates_backward_branchless},
      {"cpu.rotary_embedding.backward.full_width",        "rotary_embedding.backward",      "full_width", "cpu", all,  rotary_embedding_backward_full_width},
      {"cpu.short_convolution.backward.gather",           "short_convolution.backward",     "gather",     "cpu", all,  short_convolution_backward_gather, {}, {}, true},
  };
  static const std::vector<OperatorKernel> kTable = [&] {
    std::vector<OperatorKernel> table;
    for (const Row& row : rows) {
      const OperatorRun run = row.by_itself ? OperatorRun(row.run) : sequence_by_sequence(with_dense_copies(row.run));
      table.push_back({row.name, row.system, row.form, row.device, row.contracts, run, true, nullptr, row.limits, row.taps, true});
    }
#ifdef SAMESTATE_HAVE_CUDA
    for (OperatorKernel& row : cuda::cuda_operator_kernels()) table.push_back(std::move(row));
#endif
    return table;
  }();
  return kTable;
}
// clang-format on

}  // namespace samestate
