#pragma once

#include "optimized/operator_kernel.h"

/// Multi-head latent attention. Under a contract with 16-bit inputs, projections, norms, rotations and
/// probabilities are kept in that format between two products, as in kernels that write them to memory.
namespace samestate::cpu {

/// Computes the entries that tokens add to the cache, in one pass over tiles of tokens: projection, norm of
/// the latent, rotation of the key.
[[nodiscard]] Outcome latent_cache_fused(const OperatorArguments& call, const Contract& contract);

/// Attention with W_UK moved to the query and W_UV applied after the sum: all heads read one key [c | k^R]
/// and one value c per token, and keys and values of single heads are never formed. Unsupported if fewer
/// tokens are cached than queried.
[[nodiscard]] Outcome latent_attention_absorbed(const OperatorArguments& call, const Contract& contract);

}  // namespace samestate::cpu
