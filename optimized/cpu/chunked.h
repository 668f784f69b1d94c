#pragma once

#include <functional>

#include "optimized/cpu/layout.h"

/// The chunked form on the CPU (EQUATIONS 5.5, chunk form; rounding points of BOUNDS 1), all systems from one
/// source. `chunk` >= 1 tokens a chunk, the tail of a sequence uses its own length. A task is one head.
namespace samestate::cpu {

/// Tokens of one chunk that the L x L scratch matrices are made for: 256 MiB each at the limit.
inline constexpr std::int64_t kLongestChunk = 8192;

/// Runs a call with plain fp32 sums; a low-precision contract rounds every operand and stored matrix that it
/// names. Throws Error where the views are impossible (checked_sizes) or chunk < 1.
template <const System& system>
[[nodiscard]] Outcome run_chunked(const Arguments& arguments, const Contract& contract);

/// The same with the sums of the contract emulated: the twin.
[[nodiscard]] Outcome run_chunked_twin(const System& system, const Arguments& arguments,
                                       const Contract& contract);

/// What run_chunked would say of the call, before anything is run. Throws as it does.
[[nodiscard]] Outcome chunked_outcome(const System& system, const Arguments& arguments,
                                      const Contract& contract);

/// The chunked form, with plain fp32 sums, of `count` heads that lie elsewhere than in the tensors of the call; of
/// `settings` the chunk, the threads and which tensors there are, as of a call that chunked_outcome took.
void run_chunked_heads(const System& system, const Arguments& settings, const Contract& contract,
                       std::int64_t count, const std::function<Head(std::int64_t)>& head_at);

}  // namespace samestate::cpu
