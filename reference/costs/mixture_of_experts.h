#pragma once

#include "reference/costs/counts.h"

/// Parameters of mixtures of experts: the total, and the number that one token uses (COST-32).
namespace samestate::costs {

/// Parameters of a block or a model, and how many of them act on one token.
struct Parameters {
  Count total = 0;
  Count active = 0;
};

/// A mixture whose experts are gated two-layer blocks (SwiGLU) or one linear map.
struct MoEConfig {
  Count hidden = 128;
  Count experts = 8;
  Count experts_per_token = 2;
  Count expert_width = 0;  ///< inner width of a SwiGLU expert; 0 means one linear map hidden -> hidden
                           ///< (MOE-11)
  Count shared_width = 0;  ///< inner width of the shared SwiGLU expert, which has its own gate; 0 means no
                           ///< shared expert
  bool bias = true;        ///< for the router and for linear experts (MOE-10)
};

/// Parameters of one expert.
[[nodiscard]] inline Count expert_parameters(const MoEConfig& c) {
  return c.expert_width == 0 ? linear_parameters(c.hidden, c.hidden, c.bias)
                             : product({3, c.hidden, c.expert_width});
}

/// Parameters of router, experts and shared expert (MOE-17, CFG-12). Throws Error if a token uses more
/// experts than there are.
[[nodiscard]] inline Parameters parameters(const MoEConfig& c) {
  require_at_least(c.experts_per_token, 1, "experts_per_token");
  require_at_least(c.experts, c.experts_per_token, "experts (experts_per_token)");
  const Count expert = expert_parameters(c);
  const Count router = linear_parameters(c.hidden, c.experts, c.bias);
  const Count shared = c.shared_width == 0 ? 0 : sum({product({3, c.hidden, c.shared_width}), c.hidden});
  return {sum({router, product({c.experts, expert}), shared}),
          sum({router, product({c.experts_per_token, expert}), shared})};
}

/// A decoder with grouped-query attention and mixture blocks. The defaults are an 8 x 7B model (COST-33).
struct MoEDecoderConfig {
  Count layers = 32;
  Count heads = 32;
  Count kv_heads = 8;
  Count head_width = 128;
  Count vocabulary = 32000;
  MoEConfig block = {4096, 8, 2, 14336, 0, false};
};

/// Both embeddings are counted, two norms per layer and one at the end.
[[nodiscard]] inline Parameters parameters(const MoEDecoderConfig& c) {
  const Count D = c.block.hidden;
  const Count attention = product({2, D, c.head_width, sum({c.heads, c.kv_heads})});
  const Count outside = sum({product({2, c.vocabulary, D}), D});
  const Parameters block = parameters(c.block);
  const auto all = [&](Count mixture) {
    return sum({product({c.layers, sum({attention, mixture, 2 * D})}), outside});
  };
  return {all(block.total), all(block.active)};
}

}  // namespace samestate::costs
