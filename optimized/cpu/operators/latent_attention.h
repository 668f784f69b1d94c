#pragma once

#include "optimized/operator_kernel.h"

/// Multi-head latent attention. Under a contract with 16-bit inputs, projections, norms, rotations and
/// probabilities are kept in that format between two products, as kernels do that write them to memory.
namespace samestate::cpu {

/// What tokens add to the cache, in one pass over tiles of tokens: project, norm the latent, turn the key.
[[nodiscard]] Outcome latent_cache_fused(const OperatorArguments& call, const Contract& contract);

/// Attention with W_UK moved to the query and W_UV behind the sum: all heads read one key [c | k^R] and one
/// value c a token, and keys and values of heads are never formed. Does not run where fewer tokens are cached
/// than queried.
[[nodiscard]] Outcome latent_attention_absorbed(const OperatorArguments& call, const Contract& contract);

}  // namespace samestate::cpu
