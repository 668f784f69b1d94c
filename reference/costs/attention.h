#pragma once

#include <cstdint>

#include "reference/costs/counts.h"

/// Softmax attention and its caches, which hold either keys and values of every head or one latent vector per
/// token (EQUATIONS 5.7, 5.9).
namespace samestate::costs {

/// A stack of attention layers. The defaults are a dense model of 70 billion parameters (COST-36).
struct AttentionConfig {
  Count layers = 80;
  Count heads = 64;     ///< query heads
  Count kv_heads = 64;  ///< equal to `heads`: multi-head; fewer: grouped-query
  Count head_width = 128;
};

/// Elements that one token adds to the cache of all layers: 2 layers kv_heads head_width (COST-35, per
/// token). Throws Error if kv_heads does not divide heads.
[[nodiscard]] inline Count key_value_cache_per_token(const AttentionConfig& c) {
  require_at_least(c.kv_heads, 1, "kv_heads");
  (void)quotient(c.heads, c.kv_heads, "heads / kv_heads");
  return product({2, c.layers, c.kv_heads, c.head_width});
}

/// Bytes of the whole cache: COST-35 times length, batch and bytes per element, which it leaves out (E-22).
[[nodiscard]] inline Count key_value_cache_bytes(const AttentionConfig& c, Count length, Count batch,
                                                 Count element_bytes) {
  return product({key_value_cache_per_token(c), length, batch, element_bytes});
}

/// Elements of the matrix of scores, [batch, heads, length, length] (COST-26).
[[nodiscard]] inline Count attention_matrix_elements(Count batch, Count heads, Count length) {
  return product({batch, heads, length, length});
}

/// Operations of softmax attention on one sequence without a mask: Q K^T and P V take 2 L^2 (dk + dv) per
/// head. The exponentials are not counted (COST-3).
[[nodiscard]] inline Count softmax_attention_flops(Count length, Count heads, Count key_width,
                                                   Count value_width) {
  return product({2, length, length, heads, sum({key_width, value_width})});
}

/// Multi-head latent attention; the defaults are DeepSeek-V3's.
struct LatentAttentionConfig {
  Count layers = 61;
  Count hidden = 7168;
  Count heads = 128;
  Count key_width = 128;  ///< the part of a key without rotation
  Count value_width = 128;
  Count latent_width = 512;  ///< d_c
  Count rotary_width = 64;   ///< the rotary key, one for all heads
  Count query_latent_width = 1536;
};

/// Elements that one token adds to the cache of one layer: the latent vector, and the rotary key that MLA-4
/// leaves out.
[[nodiscard]] inline Count latent_cache_per_token(const LatentAttentionConfig& c, bool rotary_key = true) {
  return sum({c.latent_width, rotary_key ? c.rotary_width : 0});
}

/// The same for multi-head attention with these heads: keys AND values (COST-37 counts only one of the two).
[[nodiscard]] inline Count uncompressed_cache_per_token(const LatentAttentionConfig& c) {
  return product({c.heads, sum({c.key_width, c.value_width})});
}

/// Parameters of one layer: both down-projections, their norms, the up-projections and W_O. There are no
/// biases.
[[nodiscard]] inline Count parameters(const LatentAttentionConfig& c) {
  const Count query =
      sum({linear_parameters(c.hidden, c.query_latent_width), c.query_latent_width,
           linear_parameters(c.query_latent_width, product({c.heads, sum({c.key_width, c.rotary_width})}))});
  const Count latent =
      sum({linear_parameters(c.hidden, sum({c.latent_width, c.rotary_width})), c.latent_width,
           linear_parameters(c.latent_width, product({c.heads, sum({c.key_width, c.value_width})}))});
  return sum({query, latent, linear_parameters(product({c.heads, c.value_width}), c.hidden)});
}

}  // namespace samestate::costs
