#pragma once

#include "oracles/systems/stages.h"
#include "reference/layers/gated_attention.h"
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

/// The layer's weights and sizes from the inputs of its row.
template <class Scalar>
[[nodiscard]] GatedAttentionParameters<Scalar> gated_attention_parameters(const Call& call,
                                                                          const Tensors<Scalar>& inputs) {
  GatedAttentionParameters<Scalar> p;
  p.heads = call.at("H");
  p.key_heads = call.at("Hkv");
  p.head_width = call.at("d");
  p.rotary_width = 2 * call.at("pairs");
  p.epsilon = Scalar(kGatedAttentionEpsilon);
  p.q_proj = get(inputs, "q_proj");
  p.k_proj = get(inputs, "k_proj");
  p.v_proj = get(inputs, "v_proj");
  p.o_proj = get(inputs, "o_proj");
  p.q_norm = get_vector(inputs, "q_norm");
  p.k_norm = get_vector(inputs, "k_norm");
  return p;
}

/// query and gate, keys, values -> norm and rotation of q, of k -> attention -> gate -> output. Taps: q_gate
/// [T, H, 2 d], for each head the query, then its gate before the logistic function; k_projected [T, Hkv d];
/// q [T, H, d] normalised and rotated; attended [T, H, d] before the gate, in fp32 or as the kernel stored
/// it. For kernels that do not hand it out, attention and gate are one stage.
[[nodiscard]] LayerStages gated_attention_stages(const Call& call);

}  // namespace samestate
