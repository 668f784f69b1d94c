#pragma once

#include <functional>
#include <vector>

#include "harness/run/kernel_table.h"

/// A run that is judged again in pieces, each from the state that the kernel left (BOUNDS 10.1).
namespace samestate {

/// Says whether a kernel takes a piece of so many tokens; empty: it takes any.
using TakesTokens = std::function<bool(Index tokens)>;

/// Tokens of each piece of a sequence of `tokens` tokens: `shortest` and the rest, where the kernel takes these. Else pieces of at
/// least `shortest` that it takes, as short as they can be; the first cut again where there is none, of which the call says why.
[[nodiscard]] std::vector<Index> piece_lengths(Index tokens, Index shortest, const TakesTokens& takes);

/// Whether the kernel that runs the pieces of a case takes one sequence of so many tokens, with an initial state, inside the limits
/// that its row declares. Holds references to the rows of `kernels`.
[[nodiscard]] TakesTokens takes_pieces(const KernelChoice& kernels, const Resolved& r);

}  // namespace samestate
