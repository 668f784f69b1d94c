#pragma once

#include "oracles/systems/stages.h"

/// Functions shared by the rows of latent attention, and their stages.
namespace samestate {

/// The epsilon that fp32 kernels add, exactly; the equation's 1e-6 is not an fp32 number.
inline constexpr double kLatentEpsilon = static_cast<double>(1e-6F);

/// projection -> norm, rotation. Tap: projected [T, dc + dr].
[[nodiscard]] LayerStages latent_cache_stages(const Call& call);

/// compression -> its norm -> queries -> rotation -> absorption -> attention -> values -> output. Taps:
/// compressed, compressed_normed [T, q_lora] if queries are compressed; q [T, H, dn + dr] before their
/// rotation; q_rotary [T, H, dr] after it; q_latent [T, H, dc]; mixed [T, H, dc], the sums of latents; heads
/// [T, H, dv]. The naive form has no q_latent and no mixed: its attention restores keys and values of all
/// heads. The fully_absorbed form has no q and no heads.
[[nodiscard]] LayerStages latent_attention_stages(const Call& call);

}  // namespace samestate
