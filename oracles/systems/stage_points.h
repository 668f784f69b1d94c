#pragma once

#include "reference/point.h"

/// Rounding points of evaluations that only the oracles make: a stage of a layer by itself, and a choice that
/// is left open. A stage's point corresponds to one of its layer (PointRow::of) and is in a separate table: a
/// search of the stage takes its points by themselves.
namespace samestate::points {

inline constexpr PointRow kDendriticProjectionsRows[] = {
    {"v_proj", "v, after its projection.", PointUse::both, {}, "dendritic_attention.v_proj"},
    {"q_proj", "q, after its projection.", PointUse::both, {}, "dendritic_attention.q_proj"},
    {"k_proj", "k, after its projection.", PointUse::both, {}, "dendritic_attention.k_proj"},
    {"g_proj",
     "The output gate, after its projection and before silu.",
     PointUse::both,
     {},
     "dendritic_attention.g_proj"},
    {"b_proj",
     "The write strength, after its projection and before its logistic function.",
     PointUse::both,
     {},
     "dendritic_attention.b_proj"},
    {"a_proj",
     "The input of the decay, after its projection.",
     PointUse::both,
     {},
     "dendritic_attention.a_proj"},
};
inline constexpr PointTable dendritic_projections{"dendritic_attention.projections", PointTier::evaluation,
                                                  kDendriticProjectionsRows};

inline constexpr PointRow kGatedDeltaNetOutputRows[] = {
    {"out_proj", "The output, after its projection.", PointUse::both, "output", "gated_delta_net.out_proj"},
    {"gated", "The heads, after their norm and gate.", PointUse::stored, "output", "gated_delta_net.gated"},
};
inline constexpr PointTable gated_delta_net_output{"gated_delta_net_output", PointTier::evaluation,
                                                   kGatedDeltaNetOutputRows};

inline constexpr PointRow kGatedDeltaNetRuleRows[] = {
    {"normalised_q", "q of a head, after its l2norm.", PointUse::stored, {}, "gated_delta_net.normalised_q"},
    {"normalised_k", "k of a head, after its l2norm.", PointUse::stored, {}, "gated_delta_net.normalised_k"},
};
inline constexpr PointTable gated_delta_net_rule{"gated_delta_net.rule", PointTier::evaluation,
                                                 kGatedDeltaNetRuleRows};

inline constexpr PointRow kLatentAttentionRotaryRows[] = {
    {"q_up",
     "The rotary columns of the queries, after their projection.",
     PointUse::both,
     {},
     "latent_attention.q_up"},
};
inline constexpr PointTable latent_attention_rotary{"latent_attention.rotary", PointTier::evaluation,
                                                    kLatentAttentionRotaryRows};

inline constexpr PointRow kExpertStagesRows[] = {
    {"hidden", "The hidden row of an expert, after silu(gate) up.", PointUse::stored, {}, "experts.hidden"},
    {"down", "The output of an expert, after its projection.", PointUse::both, {}, "experts.down"},
    {"shared_hidden",
     "The hidden row of the shared expert, after silu(gate) up.",
     PointUse::stored,
     {},
     "qwen3_next_moe.shared_hidden"},
    {"shared_gate",
     "The gate of the shared expert, after its projection.",
     PointUse::both,
     {},
     "qwen3_next_moe.shared_gate"},
};
inline constexpr PointTable expert_stages{"mixture_of_experts.stages", PointTier::evaluation,
                                          kExpertStagesRows};

inline constexpr PointRow kMultiScaleRetentionCoreRows[] = {
    {"core",
     "The output of a head, after its retention.",
     PointUse::stored,
     {},
     "multi_scale_retention.core"},
};
inline constexpr PointTable multi_scale_retention_core{"multi_scale_retention.core", PointTier::evaluation,
                                                       kMultiScaleRetentionCoreRows};

inline constexpr PointRow kLinearMapRows[] = {
    {"y", "The output of any projection that is judged as a stage by itself, after it.", PointUse::both},
};
inline constexpr PointTable linear_map{"linear_map", PointTier::evaluation, kLinearMapRows};

inline constexpr PointRow kOpenRoutingRows[] = {
    {"weights",
     "The weights of experts of which a kernel may choose others, after their division by their sum."},
};
inline constexpr PointTable open_routing{"open_routing", PointTier::evaluation, kOpenRoutingRows};

}  // namespace samestate::points
