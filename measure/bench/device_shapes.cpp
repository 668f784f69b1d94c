#include "measure/bench/device_shapes.h"

namespace samestate {
namespace {

constexpr DeviceShape kShapes[] = {
    {"rms_norm", "B=64 T=128 D=2048"},
    {"zero_centred_rms_norm", "B=64 T=128 D=2048"},
    {"residual_rms_norm", "B=64 T=128 D=2048"},
    {"gate_first_rms_norm", "B=64 T=128 D=2048"},
    {"gated_rms_norm", "B=64 T=128 H=32 D=128"},
    {"l2norm", "B=64 T=128 H=16 D=128"},
    {"activation_gates", "B=256 T=2048 H=32"},
    {"short_convolution", "B=64 T=128 C=8192"},
    {"short_convolution", "B=256 T=1 C=8192"},
    {"rotary_embedding", "B=64 T=128 H=16 d=256 pairs=32"},
    {"overlap_windows", "B=256 T=128 N=2 stride=96 O=64"},
    {"dendritic_router", "B=256 T=128 H=8 d=256 idle=5"},
    {"dendritic_attention", "B=16 T=256 D=256 H=8 stride=96 O=64 dv=128 Es=0 K=3 idle=5"},
    {"expert_router", "B=64 T=32 D=2048 N=512 K=10"},
    {"group_limited_router", "B=64 T=32 D=7168 N=256 K=8 G=8 M=4 bias=1"},
    {"load_balance", "B=64 T=1024 N=512 K=10"},
    {"mixture_of_experts", "B=256 T=8 D=2048 N=64 K=8 F=512"},
    {"qwen3_next_moe", "B=256 T=1 D=2048 N=16 K=10 F=512 Fs=512"},
    {"softmax_attention", "B=32 T=512 H=16 Hkv=2 d=256 dv=256"},
    {"softmax_attention", "form=decode prefill=4096 B=16 T=4097 H=16 Hkv=2 d=256 dv=256"},
    {"gated_attention", "B=64 T=64 D=2048 H=16 Hkv=2 d=256 pairs=32"},
    {"latent_cache", "B=256 T=8 D=2048 dc=512 dr=64"},
    {"latent_attention", "B=16 T=256 D=512 H=4 dn=128 dr=64 dv=128 dc=512 q_lora=0"},
    {"latent_attention",
     "form=decode prefill=1024 B=64 T=1025 D=512 H=4 dn=128 dr=64 dv=128 dc=512 q_lora=0"},
    {"selective_scan", "B=8 T=2048 D=1536"},
    {"mamba_mixer", "B=16 T=512 D=256 Di=512 N=16 R=16"},
    {"state_space_duality", "B=8 T=2048 H=24 G=1 P=64 N=128"},
    {"mamba2_mixer", "B=16 T=512 D=256 H=8 G=1 P=64 N=128"},
    {"gated_delta_net", "B=256 T=1 D=2048 Hk=16 dk=128 dv=128"},
    {"gated_delta_net", "B=16 T=512 D=512 Hk=4 dk=128 dv=128"},
    {"gated_delta_step", "B=256 T=1 P=1 Hk=16 Hv=32 dk=128 dv=128"},
    {"gated_delta_net_output", "B=64 T=16 D=2048 Hv=32 dv=128"},
    {"linear_attention_normalised", "B=8 T=2048 H=16 dk=64 dv=64"},
    {"linear_attention_bidirectional", "B=8 T=2048 H=16 dk=64 dv=64"},
    {"normalised_retention", "B=8 T=2048 H=16 dk=128 dv=128"},
    {"normalised_retention_recurrence", "B=64 T=16 H=8 dk=256 dv=512"},
    {"multi_scale_retention", "B=256 T=1 D=2048 H=8 dk=256 dv=512"},
    {"gradient_step", "B=64 dk=128 dv=128"},
    {"proximal_step", "B=64 T=32 dk=128 dv=128"},
};

}  // namespace

std::span<const DeviceShape> device_shapes() { return kShapes; }

}  // namespace samestate
