#pragma once

#include "oracles/systems/stages.h"
#include "reference/latent_attention.h"

/// Functions shared by the rows of latent attention, and their stages.
namespace samestate {

/// The epsilon that fp32 kernels add, exactly; the equation's 1e-6 is not an fp32 number.
inline constexpr double kLatentEpsilon = static_cast<double>(1e-6F);

/// The tables of a call; without columns if nothing turns.
template <class Scalar>
[[nodiscard]] RotaryTables<Scalar> latent_tables(const Call& call, const Tensors<Scalar>& inputs) {
  if (call.at("dr") == 0) return {Matrix<Scalar>(call.tokens, 0), Matrix<Scalar>(call.tokens, 0)};
  return {get(inputs, "cos"), get(inputs, "sin")};
}

/// The weights from the inputs of the row of attention.
template <class Scalar>
[[nodiscard]] LatentAttentionWeights<Scalar> latent_attention_weights(const Call& call,
                                                                      const Tensors<Scalar>& inputs) {
  LatentAttentionWeights<Scalar> weights;
  weights.heads = call.at("H");
  if (call.at("q_lora") > 0) {
    weights.q_down = get(inputs, "q_down");
    weights.q_norm = get_vector(inputs, "q_norm");
  }
  weights.q_up = get(inputs, "q_up");
  // The cache is given, so only the height of the weights that make it matters.
  weights.kv_down = Matrix<Scalar>(call.at("dc") + call.at("dr"), call.at("D"));
  weights.kv_up = get(inputs, "kv_up");
  weights.output = get(inputs, "output");
  weights.epsilon = Scalar(kLatentEpsilon);
  return weights;
}

/// projection -> norm, rotation. Tap: projected [T, dc + dr].
[[nodiscard]] LayerStages latent_cache_stages(const Call& call);

/// compression -> its norm -> queries -> rotation -> absorption -> attention -> values -> output. Taps:
/// compressed, compressed_normed [T, q_lora] if queries are compressed; q [T, H, dn + dr] before their
/// rotation; q_rotary [T, H, dr] after it; q_latent [T, H, dc]; mixed [T, H, dc], the sums of latents; heads
/// [T, H, dv]. The naive form has no q_latent and no mixed: its attention restores keys and values of all
/// heads. The fully_absorbed form has no q and no heads.
[[nodiscard]] LayerStages latent_attention_stages(const Call& call);

}  // namespace samestate
