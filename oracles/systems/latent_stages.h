#pragma once

#include "oracles/systems/stages.h"

/// What the rows of latent attention share, and their stages.
namespace samestate {

/// What fp32 kernels add, exactly; the equation's 1e-6 is none of their numbers.
inline constexpr double kLatentEpsilon = static_cast<double>(1e-6F);

/// projection -> norm, rotation. Tap: projected [T, dc + dr].
[[nodiscard]] LayerStages latent_cache_stages(const Call& call);

/// compression -> norm of it -> queries -> rotation -> absorption -> attention -> values -> output. Taps: compressed,
/// compressed_normed [T, q_lora], where queries are compressed; q [T, H, dn + dr] before their rotation; q_rotary [T, H, dr]
/// behind it; q_latent [T, H, dc]; mixed [T, H, dc], the sums of latents; heads [T, H, dv]. The form naive has no q_latent and
/// no mixed: its attention restores keys and values of all heads. The form fully_absorbed has no q and no heads.
[[nodiscard]] LayerStages latent_attention_stages(const Call& call);

}  // namespace samestate
