#pragma once

#include "oracles/systems/stages.h"

/// The stages of both Mamba mixers.
namespace samestate {

/// input -> convolution -> selection -> time steps -> scan -> output (SSM-5, SSM-6, SSM-11). Taps: projected
/// [T, 2 Di] (x, z); u [T, Di]; selected [T, R + 2 N] (low-rank dt, B, C); dt [T, Di] without its bias; gated
/// [T, Di].
[[nodiscard]] LayerStages mamba_mixer_stages(const Call& call);

/// input -> convolution -> state space -> gate and norm -> output (EQUATIONS 5.10). Taps: projected [T, 2 Di + 2 G N + H] (z,
/// x, B, C, dt); convolved [T, Di + 2 G N]; y, normed [T, Di].
[[nodiscard]] LayerStages mamba2_mixer_stages(const Call& call);

}  // namespace samestate
