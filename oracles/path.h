#pragma once

#include <vector>

#include "oracles/systems/family.h"

namespace samestate {

/// A stretch of tokens that one kernel evaluates in one form, the state carried in and out.
struct Segment {
  Index tokens = 0;
  Index chunk = 0;              ///< tokens a chunk; 0: recurrent form
  bool token_by_token = false;  ///< decode: a call a token
};

/// How a sequence is evaluated, from its first token to its last. Whole, split, prefill and decode are all
/// paths.
using Path = std::vector<Segment>;

/// All tokens in one call.
[[nodiscard]] Path whole(Index tokens, Index chunk);

/// The path cut in two at token `at`, both parts from calls of their own; at in 0..tokens.
[[nodiscard]] Path split(Index tokens, Index chunk, Index at);

/// The tokens [0, prefill) at once, then one call a token on the recurrent kernel.
[[nodiscard]] Path prefill_and_decode(Index tokens, Index chunk, Index prefill);

/// The bound of a path: the segments' bounds, each starting from the error that its predecessor left in the
/// state (BOUNDS 4-5). Throws Error where the segments' tokens do not sum to the sequence's.
[[nodiscard]] Bound bound_of(const Sequence<double>& x, const Path& path, const Contract& contract,
                             const Family& family, Mode mode, bool l2norm);

}  // namespace samestate
