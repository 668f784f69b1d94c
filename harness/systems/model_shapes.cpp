#include "harness/systems/model_shapes.h"

#include <array>

namespace samestate {

std::span<const ModelShape> model_shapes() {
  static const std::vector<ModelShape> rows = {
      // Qwen3-Next-80B-A3B: width 2048, 16 query and 2 key heads of 256, 32 rotated pairs in each; Gated
      // DeltaNet with 16 key and 32 value heads of 128; 512 experts of width 512, 10 per token.
      {"rms_norm", 1, 1024, {{"H", 1}, {"D", 2048}}},
      {"zero_centred_rms_norm", 1, 1024, {{"H", 1}, {"D", 2048}}},
      {"residual_rms_norm", 1, 1024, {{"H", 1}, {"D", 2048}}},
      {"gated_rms_norm", 1, 256, {{"H", 32}, {"D", 128}}},
      {"l2norm", 1, 512, {{"H", 16}, {"D", 128}}},
      {"activation_gates", 1, 4096, {{"H", 32}}},
      {"short_convolution", 1, 128, {{"C", 8192}, {"W", 4}}},
      {"short_convolution", 16, 1, {{"C", 8192}, {"W", 4}}},
      // Their backward passes, with fewer tokens: every row of them counts in the gradient of the weight.
      {"rms_norm.backward", 1, 128, {{"H", 1}, {"D", 2048}}},
      {"zero_centred_rms_norm.backward", 1, 128, {{"H", 1}, {"D", 2048}}},
      {"residual_rms_norm.backward", 1, 128, {{"H", 1}, {"D", 2048}}},
      {"gated_rms_norm.backward", 1, 64, {{"H", 32}, {"D", 128}}},
      {"gate_first_rms_norm.backward", 1, 64, {{"H", 1}, {"D", 4096}}},
      {"l2norm.backward", 1, 128, {{"H", 16}, {"D", 128}}},
      {"activation_gates.backward", 1, 1024, {{"H", 32}}},
      {"rotary_embedding.backward", 1, 64, {{"H", 16}, {"d", 256}, {"pairs", 32}}},
      {"short_convolution.backward", 1, 32, {{"C", 8192}, {"W", 4}}},
      // Numbers of channels and taps that no kernel's tiles have, and a history after the longest taps.
      {"short_convolution", 1, 9, {{"C", 3000}, {"W", 13}, {"bias", 1}}, true},
      {"short_convolution", 2, 9, {{"C", 3072}, {"W", 4}, {"bias", 1}}, true},
      {"short_convolution", 1, 1100, {{"C", 40}, {"W", 4}}, true},
      {"short_convolution", 1, 4100, {{"C", 24}, {"W", 4}, {"bias", 1}}, true},
      {"short_convolution", 1, 9, {{"C", 8192}, {"W", 4}, {"bias", 1}}, true},
      // More rows than a grid's second dimension can have, with more columns than a vector.
      {"rms_norm", 1, 2051, {{"H", 33}, {"D", 32}}, true},
      {"l2norm", 1, 2051, {{"H", 33}, {"D", 32}}, true},
      {"gated_rms_norm", 1, 2051, {{"H", 33}, {"D", 32}}, true},
      {"rotary_embedding", 1, 1100, {{"H", 1}, {"d", 128}, {"pairs", 64}}, true},
      {"rotary_embedding", 1, 4, {{"H", 40}, {"d", 128}, {"pairs", 64}, {"interleaved", 1}}, true},
      {"expert_router", 1, 4099, {{"D", 8}, {"N", 16}, {"K", 2}}, true},
      {"selective_scan", 1, 2100, {{"D", 16}, {"N", 16}}, true},
      // Mamba's states of 16 and Mamba-2's heads of 64 with states of 128, in a batch with few channels and
      // heads.
      {"selective_scan", 2, 70, {{"D", 128}, {"N", 16}}, true},
      {"mamba_mixer", 2, 70, {{"D", 8}, {"Di", 128}, {"N", 16}, {"R", 2}, {"W", 4}}, true},
      {"state_space_duality", 2, 300, {{"H", 1}, {"G", 1}, {"P", 16}, {"N", 16}, {"chunk", 256}}, true},
      {"state_space_duality", 2, 70, {{"H", 2}, {"G", 1}, {"P", 64}, {"N", 128}, {"chunk", 64}}, true},
      {"state_space_duality", 1, 1025, {{"H", 1}, {"G", 1}, {"P", 2}, {"N", 64}}, true},
      {"mamba2_mixer", 2, 300, {{"D", 8}, {"H", 1}, {"G", 1}, {"P", 16}, {"N", 16}, {"chunk", 256}}, true},
      {"multi_scale_retention", 2, 66, {{"D", 8}, {"H", 8}, {"dk", 16}, {"dv", 16}}, true},
      {"normalised_retention", 1, 520, {{"H", 8}, {"dk", 2}, {"dv", 2}}, true},
      {"normalised_retention_recurrence", 2, 260, {{"H", 2}, {"dk", 4}, {"dv", 65}}, true},
      {"rotary_embedding", 1, 256, {{"H", 16}, {"d", 256}, {"pairs", 32}}},
      // Many pairs at positions that rotate them: the first position of a text does not.
      {"rotary_embedding", 2, 7, {{"H", 2}, {"d", 1040}, {"pairs", 509}}, true},
      {"softmax_attention", 1, 128, {{"H", 16}, {"Hkv", 2}, {"d", 256}, {"dv", 256}}},
      {"gated_attention", 1, 4, {{"D", 2048}, {"H", 16}, {"Hkv", 2}, {"d", 256}, {"pairs", 32}}},
      {"gated_delta_net", 1, 4, {{"D", 2048}, {"Hk", 16}, {"R", 2}, {"dk", 128}, {"dv", 128}, {"W", 4}}},
      // Its heads after a narrow hidden state, whose projections take no time, and tokens for two tiles.
      {"gated_attention", 2, 5, {{"D", 16}, {"H", 16}, {"Hkv", 2}, {"d", 256}, {"pairs", 32}}, true},
      {"gated_attention", 1, 66, {{"D", 8}, {"H", 2}, {"Hkv", 1}, {"d", 256}, {"pairs", 32}}, true},
      {"gated_attention", 1, 260, {{"D", 8}, {"H", 1}, {"Hkv", 1}, {"d", 64}, {"pairs", 8}}, true},
      {"gated_attention", 1, 66, {{"D", 8}, {"H", 5}, {"Hkv", 1}, {"d", 4}, {"pairs", 2}}, true},
      {"gated_delta_net", 2, 3, {{"D", 16}, {"Hk", 1}, {"R", 2}, {"dk", 128}, {"dv", 128}, {"W", 4}}, true},
      {"gated_delta_net", 2, 66, {{"D", 8}, {"Hk", 1}, {"R", 2}, {"dk", 64}, {"dv", 16}, {"W", 4}}, true},
      {"latent_attention", 2, 70, {{"D", 8}, {"q_lora", 0}}, true},
      {"rotary_embedding", 2, 70, {{"H", 2}, {"d", 128}, {"pairs", 64}}, true},
      {"residual_rms_norm", 2, 3, {{"H", 1}, {"D", 4104}}, true},
      // Models' heads in a batch, in grouped queries, after a thousand keys.
      {"softmax_attention", 2, 70, {{"H", 8}, {"Hkv", 1}, {"d", 128}, {"dv", 128}}, true},
      {"softmax_attention", 1, 66, {{"H", 3}, {"Hkv", 1}, {"d", 65}, {"dv", 65}}, true},
      {"softmax_attention", 1, 1026, {{"H", 1}, {"Hkv", 1}, {"d", 64}, {"dv", 8}}, true},
      {"gated_delta_net", 1, 70, {{"D", 32}, {"Hk", 1}, {"R", 3}, {"dk", 72}, {"dv", 72}, {"W", 4}}, true},
      {"gated_delta_step", 1, 2, {{"P", 2}, {"Hk", 16}, {"Hv", 32}, {"dk", 128}, {"dv", 128}}},
      // Its use in serving: drafted tokens of several requests, a slot far away, more requests than threads.
      {"gated_delta_step", 6, 4, {{"P", 4}, {"Hk", 16}, {"Hv", 32}, {"dk", 128}, {"dv", 128}}, true},
      {"gated_delta_step", 3, 2, {{"P", 300}, {"Hk", 1}, {"Hv", 2}, {"dk", 64}, {"dv", 64}}, true},
      {"gated_delta_step", 1027, 1, {{"P", 2}, {"Hk", 1}, {"Hv", 2}, {"dk", 4}, {"dv", 4}}, true},
      {"gated_delta_net_output", 1, 16, {{"D", 2048}, {"Hv", 32}, {"dv", 128}}},
      {"gated_delta_net_output", 1, 3, {{"D", 264}, {"Hv", 33}, {"dv", 128}}, true},
      {"expert_router", 1, 32, {{"D", 2048}, {"N", 512}, {"K", 10}}},
      // DeepSeek-V3's router, and GLM 4.5's, which has one group.
      {"group_limited_router", 1, 8, {{"D", 7168}, {"N", 256}, {"K", 8}, {"G", 8}, {"M", 4}, {"bias", 1}}},
      {"group_limited_router",
       1,
       2,
       {{"D", 5120}, {"N", 160}, {"K", 8}, {"G", 1}, {"M", 1}, {"bias", 1}},
       true},
      // Many tokens with limited groups under every contract: all experts of the groups kept, an odd number
      // of them, groups of one, and the largest sizes of all.
      {"group_limited_router", 1, 70, {{"D", 72}, {"N", 144}, {"K", 20}, {"G", 12}, {"M", 5}, {"bias", 1}}},
      {"group_limited_router", 1, 9, {{"D", 40}, {"N", 77}, {"K", 33}, {"G", 7}, {"M", 3}}, true},
      {"group_limited_router",
       1,
       9,
       {{"D", 40}, {"N", 64}, {"K", 8}, {"G", 64}, {"M", 16}, {"bias", 1}},
       true},
      {"group_limited_router",
       1,
       3,
       {{"D", 8}, {"N", 1024}, {"K", 64}, {"G", 64}, {"M", 32}, {"bias", 1}},
       true},
      // Groups more than twice as wide as a warp; one expert in all, whose score may underflow; groups of an
      // odd width.
      {"group_limited_router",
       1,
       9,
       {{"D", 24}, {"N", 512}, {"K", 8}, {"G", 4}, {"M", 2}, {"bias", 1}},
       true},
      {"group_limited_router", 1, 9, {{"D", 4}, {"N", 1}, {"K", 1}, {"G", 1}, {"M", 1}}, true},
      {"group_limited_router", 1, 40, {{"D", 8}, {"N", 27}, {"K", 4}, {"G", 3}, {"M", 2}, {"bias", 1}}, true},
      {"group_limited_router", 1, 4099, {{"D", 8}, {"N", 16}, {"K", 2}, {"bias", 1}}, true},
      {"load_balance", 1, 1024, {{"N", 512}, {"K", 10}}},
      {"load_balance", 1, 4099, {{"N", 8}, {"K", 2}}, true},
      // Its widths with 16 of its experts, since all of them take 6.4 GB.
      {"mixture_of_experts", 1, 2, {{"D", 2048}, {"N", 16}, {"K", 10}, {"F", 512}}},
      {"mixture_of_experts", 1, 3, {{"D", 264}, {"N", 3}, {"K", 2}, {"F", 264}}, true},
      {"mixture_of_experts", 1, 3, {{"D", 16}, {"N", 512}, {"K", 10}, {"F", 8}}, true},
      {"qwen3_next_moe", 1, 3, {{"D", 264}, {"N", 3}, {"K", 2}, {"F", 264}, {"Fs", 264}}, true},
      {"qwen3_next_moe", 1, 2, {{"D", 2048}, {"N", 16}, {"K", 10}, {"F", 512}, {"Fs", 512}}},
      // RetNet with 1.3 billion parameters: width 2048, 8 heads, values twice as wide as keys.
      {"normalised_retention", 1, 64, {{"H", 8}, {"dk", 256}, {"dv", 512}}},
      {"normalised_retention_recurrence", 1, 8, {{"H", 8}, {"dk", 256}, {"dv", 512}}},
      {"normalised_retention_recurrence", 1, 2051, {{"H", 20}, {"dk", 2}, {"dv", 2}}, true},
      {"multi_scale_retention", 1, 4, {{"D", 2048}, {"H", 8}, {"dk", 256}, {"dv", 512}}},
      // Heads as in a linear transformer.
      {"linear_attention_bidirectional", 1, 128, {{"H", 8}, {"dk", 64}, {"dv", 64}}},
      {"linear_attention_bidirectional", 1, 600, {{"H", 1}, {"dk", 16}, {"dv", 16}}, true},
      {"linear_attention_bidirectional", 1, 300, {{"H", 1}, {"dk", 64}, {"dv", 64}}, true},
      {"linear_attention_bidirectional", 1, 4099, {{"H", 2}, {"dk", 4}, {"dv", 4}}, true},
      {"linear_attention_normalised", 1, 128, {{"H", 8}, {"dk", 64}, {"dv", 64}}},
      // Mamba and Mamba-2 with 130 million parameters: width 768.
      {"selective_scan", 1, 128, {{"D", 1536}, {"N", 16}}},
      {"mamba_mixer", 1, 16, {{"D", 768}, {"Di", 1536}, {"N", 16}, {"R", 48}}},
      // Kimi Linear: 32 heads of 128 x 128. Gated linear attention has half as wide keys as values.
      {"kimi_delta_attention", 1, 32, {{"Hk", 4}, {"Hv", 4}, {"dk", 128}, {"dv", 128}}},
      {"gated_delta_net_2", 1, 32, {{"Hk", 2}, {"Hv", 2}, {"dk", 128}, {"dv", 128}}},
      {"gated_linear_attention", 1, 32, {{"Hk", 2}, {"Hv", 2}, {"dk", 128}, {"dv", 256}}},
      {"state_space_duality", 1, 128, {{"H", 24}, {"G", 1}, {"P", 64}, {"N", 128}}},
      {"state_space_duality", 1, 142, {{"H", 2}, {"G", 1}, {"P", 68}, {"N", 68}}, true},
      {"activation_gates", 1, 4099, {{"H", 34}}, true},
      {"mamba2_mixer", 1, 16, {{"D", 768}, {"H", 24}, {"G", 1}, {"P", 64}, {"N", 128}}},
      {"gate_first_rms_norm", 1, 256, {{"H", 1}, {"D", 1536}}},
      // DeepSeek-V2-Lite: width 2048, 16 heads of 128, a latent of 512 and 64 rotary columns.
      {"latent_cache", 1, 16, {{"D", 2048}, {"dc", 512}, {"dr", 64}}},
      {"latent_cache", 1, 20, {{"D", 64}, {"dc", 512}, {"dr", 64}}},
      {"latent_cache", 1, 3, {{"D", 7168}, {"dc", 512}, {"dr", 64}}, true},  // DeepSeek-V3's
      // An eighth of those widths: for the full ones the worst-case bound is vacuous, and drawn roundings
      // take some ten seconds.
      {"latent_attention",
       1,
       16,
       {{"D", 256}, {"H", 2}, {"dn", 32}, {"dr", 16}, {"dv", 32}, {"dc", 64}, {"q_lora", 0}}},
      // One head of test-time training, and document 003's dendritic layer (DEND-1), half its values.
      {"gradient_step", 1, 32, {{"dk", 128}, {"dv", 128}}},
      {"proximal_step", 1, 32, {{"dk", 128}, {"dv", 128}}},
      {"overlap_windows", 8, 128, {{"N", 2}, {"stride", 96}, {"O", 64}}},
      {"dendritic_router", 1, 64, {{"H", 8}, {"d", 256}, {"Es", 1}, {"K", 2}, {"idle", 5}}},
      {"dendritic_attention",
       1,
       2,
       {{"D", 2048}, {"H", 8}, {"N", 2}, {"stride", 96}, {"O", 64}, {"dv", 256}, {"K", 2}, {"idle", 5}}},
      // Wider than all of the above: rows for which the threads of a block hold more than one vector each.
      {"rms_norm", 1, 2, {{"H", 1}, {"D", 4097}}},
      {"rms_norm", 1, 2, {{"H", 1}, {"D", 8193}}},
      {"rms_norm", 1, 1, {{"H", 1}, {"D", 16384}}},
      {"zero_centred_rms_norm", 1, 2, {{"H", 1}, {"D", 4097}}},
      {"zero_centred_rms_norm", 1, 2, {{"H", 1}, {"D", 8193}}},
      {"zero_centred_rms_norm", 1, 1, {{"H", 1}, {"D", 16384}}},
      {"residual_rms_norm", 1, 2, {{"H", 1}, {"D", 4097}}},
      {"residual_rms_norm", 1, 2, {{"H", 1}, {"D", 8193}}},
      {"residual_rms_norm", 1, 1, {{"H", 1}, {"D", 16384}}},
      {"gated_rms_norm", 1, 2, {{"H", 1}, {"D", 4097}}},
      {"gated_rms_norm", 1, 2, {{"H", 1}, {"D", 8193}}},
      {"gated_rms_norm", 1, 1, {{"H", 1}, {"D", 16384}}},
      {"gate_first_rms_norm", 1, 2, {{"H", 1}, {"D", 4097}}},
      {"gate_first_rms_norm", 1, 2, {{"H", 1}, {"D", 8193}}},
      {"gate_first_rms_norm", 1, 1, {{"H", 1}, {"D", 16384}}},
      {"l2norm", 1, 2, {{"H", 1}, {"D", 4097}}},
      {"l2norm", 1, 2, {{"H", 1}, {"D", 8193}}},
      {"l2norm", 1, 1, {{"H", 1}, {"D", 16384}}},
      {"expert_router", 1, 2, {{"D", 4097}, {"N", 8}, {"K", 2}}},
      {"expert_router", 1, 2, {{"D", 8193}, {"N", 8}, {"K", 2}}},
      {"expert_router", 1, 1, {{"D", 16384}, {"N", 8}, {"K", 2}}},
      // Keys and values of latent attention without its cache.
      {"softmax_attention", 1, 70, {{"H", 2}, {"Hkv", 2}, {"d", 192}, {"dv", 128}}},
      // One or two heads as they are in models; the layers' other widths would add cost and test nothing of
      // the heads.
      {"gated_delta_net", 1, 3, {{"D", 8}, {"Hk", 1}, {"R", 1}, {"dk", 128}, {"dv", 128}, {"W", 4}}, true},
      {"gated_attention", 1, 70, {{"D", 32}, {"H", 2}, {"Hkv", 1}, {"d", 128}, {"pairs", 32}}, true},
      {"state_space_duality", 1, 150, {{"H", 1}, {"G", 1}, {"P", 64}, {"N", 64}}, true},
      {"state_space_duality", 1, 70, {{"H", 8}, {"G", 1}, {"P", 64}, {"N", 128}}, true},
      {"state_space_duality", 1, 20, {{"H", 2}, {"G", 1}, {"P", 64}, {"N", 128}}, true},
      {"mamba2_mixer", 1, 4, {{"D", 8}, {"H", 1}, {"G", 1}, {"P", 64}, {"N", 128}}, true},
      {"mamba_mixer", 1, 20, {{"D", 16}, {"Di", 32}, {"N", 16}, {"R", 160}}, true},
      {"latent_attention",
       1,
       8,
       {{"D", 64}, {"H", 1}, {"dn", 128}, {"dr", 64}, {"dv", 128}, {"dc", 512}, {"q_lora", 0}},
       true},
      {"latent_attention",
       1,
       4,
       {{"D", 8}, {"H", 1}, {"dn", 16}, {"dr", 16}, {"dv", 16}, {"dc", 16}, {"q_lora", 1536}},
       true},
      {"expert_router", 1, 4, {{"D", 64}, {"N", 256}, {"K", 8}, {"bias", 1}}, true},
      {"short_convolution", 1, 1100, {{"C", 128}, {"W", 4}}, true},
      {"rotary_embedding", 1, 4, {{"H", 2}, {"d", 192}, {"pairs", 32}}, true},
      {"rotary_embedding", 1, 4, {{"H", 2}, {"d", 64}, {"pairs", 32}, {"interleaved", 1}}, true},
      {"rotary_embedding", 1, 4, {{"H", 2}, {"d", 34}, {"pairs", 17}, {"interleaved", 1}}, true},
      // More keys than a tile list, a split or a 12-bit index holds.
      {"softmax_attention", 1, 4100, {{"H", 1}, {"Hkv", 1}, {"d", 2}, {"dv", 1}}, true},
  };
  return rows;
}

std::span<const HeadWidths> head_widths() {
  static constexpr std::array<HeadWidths, 4> rows{{{64, 64}, {128, 128}, {256, 256}, {128, 64}}};
  return rows;
}

std::span<const FamilyCall> family_calls() {
  using enum FamilyCall::Tried;
  static constexpr std::array rows{
      // A single chunk that covers the whole call.
      FamilyCall{every_regime, "chunk=128 T=128 dk=16 dv=8 state=random"},
      FamilyCall{every_regime, "chunk=64 T=193 dk=64 dv=16 Hk=1 Hv=2 state=random"},
      FamilyCall{every_regime, "chunk=128 T=200 dk=16 dv=8 state=random"},
      FamilyCall{every_regime, "chunk=64 form=packed lengths=66,3,64 dk=128 dv=128 l2norm=1"},
      FamilyCall{one_contract, "dk=128 dv=128 chunk=64 T=130 final=in_place"},
      FamilyCall{one_contract, "dk=128 dv=128 chunk=64 form=packed lengths=1,70,0,5 l2norm=1"},
      FamilyCall{one_contract, "dk=64 dv=64 chunk=64 form=packed lengths=0,66,1,64,0,129"},
      FamilyCall{one_contract, "dk=128 dv=128 chunk=64 form=decode prefill=65 T=67"},
      FamilyCall{one_contract, "dk=64 dv=64 chunk=64 T=193 Hk=1 Hv=2 l2norm=1"},
      FamilyCall{one_contract, "dk=128 dv=128 chunk=128 T=131 state=none"},
      FamilyCall{one_contract, "dk=64 dv=64 chunk=128 T=259 final=in_place"},
      FamilyCall{one_contract, "dk=128 dv=64 chunk=64 T=67 Hk=1 Hv=2"},
      FamilyCall{one_contract, "dk=128 dv=128 chunk=64 T=2 Hk=32 Hv=96 l2norm=1"},
      FamilyCall{one_contract, "dk=128 dv=16 chunk=64 T=2 Hk=16 Hv=128"},
      FamilyCall{one_contract, "dk=80 dv=80 chunk=64 T=70"},
      FamilyCall{one_contract, "dk=96 dv=96 chunk=64 form=packed lengths=65,1,0,3 state=none"},
      FamilyCall{one_contract, "dk=256 dv=256 chunk=64 form=packed lengths=1,0,9 final=in_place"},
      FamilyCall{one_contract, "dk=256 dv=256 chunk=64 form=decode prefill=3 T=6"},
      FamilyCall{one_contract, "dk=64 dv=64 chunk=64 form=decode prefill=3 T=6 B=2 Hk=2 Hv=4 l2norm=1"},
      FamilyCall{one_contract, "dk=256 dv=512 chunk=64 T=9"},
      FamilyCall{one_contract, "dk=64 dv=192 chunk=64 T=9 Hk=3 Hv=6"},
      FamilyCall{one_contract, "dk=128 dv=256 chunk=64 T=9 Hk=3 Hv=6 heads=tiled"},
      FamilyCall{one_contract, "dk=64 dv=256 chunk=64 T=9 Hk=5 Hv=5"},
      // Larger than a tile in several ways at once: chunks and widths, sequences of several chunks, the
      // length of a text.
      FamilyCall{one_contract, "dk=192 dv=128 chunk=256 T=350 l2norm=1"},
      FamilyCall{one_contract, "dk=192 dv=128 chunk=256 T=350 regime=slow"},
      FamilyCall{one_contract, "dk=128 dv=128 chunk=128 form=packed lengths=70,200,300"},
      FamilyCall{one_contract, "dk=64 dv=64 chunk=64 T=4357"},
      // The last rows of a chunk that is not full, with decays that let them see its first row.
      FamilyCall{one_contract, "dk=16 dv=16 chunk=64 T=63 regime=slow"},
      FamilyCall{one_contract, "dk=16 dv=16 chunk=64 T=113 regime=slow Hk=1 Hv=2"},
      FamilyCall{one_contract, "dk=16 dv=8 chunk=64 T=9 Hk=3 Hv=15"},
      FamilyCall{one_contract, "dk=128 dv=128 chunk=64 form=packed lengths=3,2 Hk=16 Hv=32"},
      FamilyCall{divided_as_well,
                 "dk=128 dv=16 chunk=64 form=packed lengths=70,1,130,0,64,65,3,67,9,66 Hk=2 Hv=6 l2norm=1"},
      FamilyCall{divided_as_well,
                 "dk=16 dv=128 chunk=128 form=packed lengths=20,0,131,70,1,1,257,65,12,3 Hk=2 Hv=4 "
                 "heads=tiled final=in_place"},
      FamilyCall{divided_as_well,
                 "dk=64 dv=16 chunk=64 form=packed lengths=66,0,129,5,64,1,2,3,80,1,70 unowned=3,2 Hk=3 Hv=9 "
                 "l2norm=1 layout=fused"},
      FamilyCall{divided_as_well, "dk=128 dv=16 chunk=64 B=2 T=130 Hk=2 Hv=4 l2norm=1"},
      FamilyCall{divided_as_well, "dk=16 dv=128 chunk=64 B=2 T=131 Hk=2 Hv=6 layout=padded"},
      FamilyCall{divided_as_well, "dk=128 dv=8 chunk=64 T=300 Hk=2 Hv=6 final=none"},
      // Everything at once with few columns and smaller chunks: errors that need four or five ordinary
      // features together.
      FamilyCall{divided_as_well, "dk=4 dv=3 chunk=16 B=2 T=67 Hk=2 Hv=4 l2norm=1"},
      FamilyCall{divided_as_well,
                 "dk=4 dv=3 chunk=16 B=2 T=67 Hk=2 Hv=4 heads=tiled l2norm=1 final=in_place layout=permuted"},
      FamilyCall{divided_as_well, "dk=4 dv=8 chunk=16 B=2 T=67 Hk=2 Hv=4 heads=tiled l2norm=1 state=none"},
      FamilyCall{divided_as_well, "dk=64 dv=5 chunk=32 B=2 T=103 Hk=2 Hv=6 l2norm=1"},
      FamilyCall{divided_as_well, "dk=128 dv=64 chunk=64 B=2 T=66 Hk=1 Hv=2 l2norm=1"},
      FamilyCall{divided_as_well, "dk=8 dv=4 chunk=64 B=2 T=2050 Hk=1 Hv=2 l2norm=1 regime=slow"},
      FamilyCall{divided_as_well, "dk=64 dv=2 chunk=64 T=1030 l2norm=1 regime=slow"},
      FamilyCall{divided_as_well, "dk=128 dv=128 chunk=64 form=packed lengths=5,66 Hk=1 Hv=2 l2norm=1"},
      FamilyCall{divided_as_well,
                 "dk=64 dv=16 chunk=16 form=packed lengths=1,1,1,1 Hk=1 Hv=2 l2norm=1 final=in_place"},
      FamilyCall{divided_as_well,
                 "dk=16 dv=7 chunk=16 form=packed lengths=30,40,0,1,17 Hk=2 Hv=4 heads=tiled l2norm=1"},
      FamilyCall{divided_as_well,
                 "dk=64 dv=8 chunk=16 form=decode prefill=37 T=40 B=2 Hk=2 Hv=4 l2norm=1 final=in_place"},
      FamilyCall{divided_as_well,
                 "dk=8 dv=5 chunk=16 form=decode prefill=37 T=40 B=2 Hk=2 Hv=6 heads=tiled l2norm=1"},
      FamilyCall{divided_as_well, "dk=8 dv=5 chunk=16 B=2 T=150 Hk=2 Hv=4 l2norm=1 law=split"},
      FamilyCall{divided_as_well, "dk=8 dv=5 chunk=16 T=40 Hk=2 Hv=4 l2norm=1 law=serving"},
  };
  return rows;
}

}  // namespace samestate
