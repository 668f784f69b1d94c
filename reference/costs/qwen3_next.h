#pragma once

#include "reference/costs/attention.h"
#include "reference/costs/mixture_of_experts.h"
#include "reference/costs/recurrence.h"

/// Costs of Qwen3-Next. The defaults are the config.json of document 001 (CFG-8..CFG-13).
namespace samestate::costs {

struct Qwen3NextConfig {
  Count layers = 48;
  Count full_attention_interval = 4;
  Count hidden = 2048;
  Count key_heads = 16;  ///< key heads of the gated delta rule
  Count key_width = 128;
  Count value_heads = 32;
  Count value_width = 128;
  Count convolution_width = 4;
  Count attention_heads = 16;
  Count kv_heads = 2;
  Count head_width = 256;
  double rotary_factor = 0.25;
  double rotary_base = 1e7;
  Count positions = 262144;
  Count experts = 512;
  Count experts_per_token = 10;
  Count expert_width = 512;
  Count shared_width = 512;
  Count vocabulary = 151936;
  bool tied_embeddings = false;
};

/// Widths that follow from the configuration.
struct Qwen3NextShape {
  Count key_dim = 0;          ///< key_heads key_width (CFG-7)
  Count value_dim = 0;        ///< value_heads value_width
  Count projection_qkvz = 0;  ///< 2 key_dim + 2 value_dim (COST-5)
  Count projection_ba = 0;    ///< 2 value_heads
  Count convolved = 0;        ///< 2 key_dim + value_dim: q, k and v, not z (CONV-2)
  Count head_repeat = 0;      ///< value heads per key head (GDN-26)
  Count query_dim = 0;        ///< attention_heads head_width (CFG-9)
  Count rotary_width = 0;     ///< channels of a head that are rotated (CFG-10)
  Count attention_layers = 0;
  Count delta_layers = 0;
};

/// True if the 0-based layer i is full attention: (i + 1) mod interval = 0 (CFG-8).
[[nodiscard]] inline bool is_full_attention(const Qwen3NextConfig& c, Count layer) {
  require_at_least(c.full_attention_interval, 1, "full_attention_interval");
  return (layer + 1) % c.full_attention_interval == 0;
}

/// Throws Error if the key heads do not divide the value heads, or a count is below 1.
[[nodiscard]] inline Qwen3NextShape shape(const Qwen3NextConfig& c) {
  require_at_least(c.layers, 1, "layers");
  Qwen3NextShape s;
  s.key_dim = product({c.key_heads, c.key_width});
  s.value_dim = product({c.value_heads, c.value_width});
  s.projection_qkvz = product({2, sum({s.key_dim, s.value_dim})});
  s.projection_ba = product({2, c.value_heads});
  s.convolved = sum({product({2, s.key_dim}), s.value_dim});
  s.head_repeat = quotient(c.value_heads, c.key_heads, "value_heads / key_heads");
  s.query_dim = product({c.attention_heads, c.head_width});
  s.rotary_width = static_cast<Count>(c.rotary_factor * static_cast<double>(c.head_width));
  for (Count layer = 0; layer < c.layers; ++layer) {
    (is_full_attention(c, layer) ? s.attention_layers : s.delta_layers) += 1;
  }
  return s;
}

/// Parameters of one Gated DeltaNet mixer: W_qkvz, W_ba, convolution, A_log, dt_bias, norm and W_o, without
/// biases.
[[nodiscard]] inline Count gated_delta_net_parameters(const Qwen3NextConfig& c) {
  const Qwen3NextShape s = shape(c);
  return sum({linear_parameters(c.hidden, s.projection_qkvz), linear_parameters(c.hidden, s.projection_ba),
              product({s.convolved, c.convolution_width}), product({2, c.value_heads}), c.value_width,
              linear_parameters(s.value_dim, c.hidden)});
}

/// Parameters of one gated attention mixer: W_q (which produces queries and gates), W_k, W_v, W_o and two
/// head norms.
[[nodiscard]] inline Count gated_attention_parameters(const Qwen3NextConfig& c) {
  const Qwen3NextShape s = shape(c);
  const Count kv = product({c.kv_heads, c.head_width});
  return sum({linear_parameters(c.hidden, product({2, s.query_dim})),
              product({2, linear_parameters(c.hidden, kv)}), linear_parameters(s.query_dim, c.hidden),
              product({2, c.head_width})});
}

/// The mixture block of every layer (CFG-12).
[[nodiscard]] inline MoEConfig mixture(const Qwen3NextConfig& c) {
  return {c.hidden, c.experts, c.experts_per_token, c.expert_width, c.shared_width, false};
}

/// Parameters by part (COST-6), without the multi-token-prediction head.
struct Qwen3NextParameters {
  Parameters layers;        ///< mixers, mixtures and norms, including the final norm
  Count embedding = 0;      ///< the input embedding
  Count language_head = 0;  ///< 0 if tied to the embedding

  [[nodiscard]] Count total() const { return sum({layers.total, embedding, language_head}); }
};

[[nodiscard]] inline Qwen3NextParameters parameters(const Qwen3NextConfig& c) {
  const Qwen3NextShape s = shape(c);
  const Parameters block = parameters(mixture(c));
  const auto all = [&](Count mixture_parameters) {
    return sum({product({s.delta_layers, gated_delta_net_parameters(c)}),
                product({s.attention_layers, gated_attention_parameters(c)}),
                product({c.layers, sum({mixture_parameters, 2 * c.hidden})}), c.hidden});
  };
  const Count embedding = product({c.vocabulary, c.hidden});
  return {{all(block.total), all(block.active)}, embedding, c.tied_embeddings ? 0 : embedding};
}

/// Elements of the recurrent state of one sequence in one Gated DeltaNet layer (GDN-10).
[[nodiscard]] inline Count state_elements(const Qwen3NextConfig& c) {
  return product({c.value_heads, c.key_width, c.value_width});
}

/// Elements of that layer's convolution state with `kept` inputs per channel: W - 1 are needed, upstream
/// keeps W (CONV-5).
[[nodiscard]] inline Count convolution_cache_elements(const Qwen3NextConfig& c, Count kept) {
  return product({shape(c).convolved, kept});
}

/// The attention layers, as an attention stack with its cache.
[[nodiscard]] inline AttentionConfig attention(const Qwen3NextConfig& c) {
  return {shape(c).attention_layers, c.attention_heads, c.kv_heads, c.head_width};
}

}  // namespace samestate::costs
