#pragma once

#include <functional>
#include <vector>

#include "harness/run/kernel_table.h"

/// Lengths for a run that is judged again in pieces, each from the state that the kernel left (BOUNDS 10.1).
namespace samestate {

/// True if the kernel accepts a piece of that many tokens; an empty function accepts any.
using TakesTokens = std::function<bool(Index tokens)>;

/// The numbers of tokens in the pieces of a sequence of `tokens` tokens: `shortest` each and the rest, if the
/// kernel accepts these. Otherwise pieces of at least `shortest` that it accepts, as short as possible; if
/// there are none, the first division again, and the call itself then says why it is refused.
[[nodiscard]] std::vector<Index> piece_lengths(Index tokens, Index shortest, const TakesTokens& takes);

/// True for the numbers of tokens of one sequence, with an initial state, that the kernel for the pieces of a
/// case accepts within the limits of its row. Holds references to the rows of `kernels`.
[[nodiscard]] TakesTokens takes_pieces(const KernelChoice& kernels, const Resolved& r);

}  // namespace samestate
