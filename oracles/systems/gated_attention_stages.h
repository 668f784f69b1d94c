#pragma once

#include "oracles/systems/stages.h"
#include "reference/online_softmax.h"

/// Functions shared by the rows of softmax attention, and the stages of Qwen3-Next's layer.
namespace samestate {

/// The form of attention that the call asks for.
template <class Scalar>
[[nodiscard]] Matrix<Scalar> attend(const Call& call, const AttentionInputs<Scalar>& x) {
  if (call.form == "online") return softmax_attention_online(x, call.chunk);
  if (call.form == "merged") return softmax_attention_merged(x, call.chunk);
  if (call.form == "grouped") return softmax_attention_grouped(x);
  return softmax_attention(x);
}

/// Epsilon of the layer's norms, as kernels hold it.
inline constexpr double kGatedAttentionEpsilon = static_cast<double>(1e-6F);

/// query and gate, keys, values -> norm and rotation of q, of k -> attention -> gate -> output. Taps: q_gate
/// [T, H, 2 d], for each head the query, then its gate before the logistic function; k_projected [T, Hkv d];
/// q [T, H, d] normalised and rotated; attended [T, H, d] before the gate, in fp32 or as the kernel stored
/// it. For kernels that do not hand it out, attention and gate are one stage.
[[nodiscard]] LayerStages gated_attention_stages(const Call& call);

}  // namespace samestate
