#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "optimized/cpu/layout.h"

/// The chunked form on the CPU (EQUATIONS 5.5, chunk form; rounding points of BOUNDS 1), for all systems from
/// one source. A chunk has `chunk` >= 1 tokens, the last one of a sequence possibly fewer. A task is one
/// head.
namespace samestate::cpu {

/// The largest chunk that the L x L scratch matrices support: 256 MiB each at this limit.
inline constexpr std::int64_t kLongestChunk = 8192;

/// Runs a call with plain fp32 sums; a low-precision contract rounds every operand and stored matrix that it
/// names. Throws Error if the views are inconsistent (checked_sizes) or chunk < 1.
template <const System& system>
[[nodiscard]] Outcome run_chunked(const Arguments& arguments, const Contract& contract);

/// The same with the contract's sums emulated: the twin.
[[nodiscard]] Outcome run_chunked_twin(const System& system, const Arguments& arguments,
                                       const Contract& contract);

/// Returns what run_chunked would return for the call, without running it. Throws Error as it does.
[[nodiscard]] Outcome chunked_outcome(const System& system, const Arguments& arguments,
                                      const Contract& contract);

/// The reason why no kernel in chunks runs the call; empty if one may. Throws Error for chunk < 1.
[[nodiscard]] std::string refused_chunk(const Arguments& arguments, const Sizes& sizes);

/// The chunked form, with plain fp32 sums, on `count` heads that are not in the tensors of the call.
/// `settings` provides the chunk, the threads and which tensors are present, as in a call that
/// chunked_outcome accepted.
void run_chunked_heads(const System& system, const Arguments& settings, const Contract& contract,
                       std::int64_t count, const std::function<Head(std::int64_t)>& head_at);

}  // namespace samestate::cpu
