#pragma once

#include "oracles/proofs/goldens/source.h"

/// One check for each kind of group: it runs the reference on the group's inputs, in every form it has, and
/// compares its outputs with the group's. Each throws Error if the group's tensors are missing or disagree.
namespace samestate {

void check_recurrent_family_golden(const GoldenSource& source);
void check_norm_golden(const GoldenSource& source);                ///< gated_rmsnorm, zero_centered_rmsnorm
void check_gated_attention_golden(const GoldenSource& source);     ///< gated_attention
void check_latent_attention_golden(const GoldenSource& source);    ///< mla
void check_mixture_of_experts_golden(const GoldenSource& source);  ///< moe_block
void check_mamba_golden(const GoldenSource& source);               ///< mamba_mixer
void check_mamba2_golden(const GoldenSource& source);              ///< mamba2_mixer
void check_gated_delta_net_golden(const GoldenSource& source);     ///< gdn_layer

}  // namespace samestate
