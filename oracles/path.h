#pragma once

#include <cstdint>
#include <vector>

#include "oracles/batch.h"
#include "oracles/systems/family.h"

namespace samestate {

/// A stretch of tokens that one kernel evaluates in one form, the state carried in and out.
struct Segment {
  Index tokens = 0;
  Index chunk = 0;              ///< tokens a chunk; 0: recurrent form
  bool token_by_token = false;  ///< decode: a call a token
  /// [ranks + 1] over ranks: rank r holds the tokens [c[r], c[r+1]) of the segment; empty: one rank holds all.
  std::vector<Index> cuts = {};
  /// [ranks + 1] the same of value heads, which do not meet: no bound knows of it. Empty: one rank holds all.
  std::vector<Index> head_cuts = {};
};

/// How the tokens of a call are divided among ranks, or its value heads.
struct Ranks {
  Index count = 1;
  bool drawn =
      false;  ///< any cuts, drawn from the seed, of which some are equal; else equal parts of whole chunks
  std::uint64_t seed = 0;  ///< of the cuts that are drawn
  Index heads = 0;         ///< value heads, where they are divided; else tokens are

  /// Of a call of so many tokens: [count + 1], ascending from 0; empty for one rank. Equal parts are of ceil(T / count)
  /// tokens, rounded up to whole chunks: the last that holds tokens may have fewer, those behind it have none.
  [[nodiscard]] std::vector<Index> cuts(Index tokens, Index chunk) const;
  /// The call of so many tokens in chunks.
  [[nodiscard]] Segment call(Index tokens, Index chunk) const;
};

/// How a sequence is evaluated, from its first token to its last. Whole, split, prefill and decode are all
/// paths.
using Path = std::vector<Segment>;

/// All tokens in one call.
[[nodiscard]] Path whole(Index tokens, Index chunk, const Ranks& ranks = {});

/// The path cut in two at token `at`, both parts from calls of their own; at in 0..tokens.
[[nodiscard]] Path split(Index tokens, Index chunk, Index at, const Ranks& ranks = {});

/// The tokens [0, prefill) at once, then one call a token on the recurrent kernel.
[[nodiscard]] Path prefill_and_decode(Index tokens, Index chunk, Index prefill, const Ranks& ranks = {});

/// How sequence n of a batch goes where its rows go along `rows`: the same, or of a packed batch, whose path is one segment,
/// what the sequence has of it.
[[nodiscard]] Path path_of_sequence(const Path& rows, const BatchShape& shape, Index n);

/// The path with a segment for each part that a rank holds.
[[nodiscard]] Path part_by_part(const Path& path);

/// The bound of a path: the segments' bounds, each starting from the error that its predecessor left in the
/// state (BOUNDS 4-5), or that the composition of the maps before it did (BOUNDS 5.3). Throws Error where the segments' tokens do not sum to the sequence's.
[[nodiscard]] Bound bound_of(const Sequence<double>& x, const Path& path, const Contract& contract,
                             const Family& family, Mode mode, bool l2norm);

}  // namespace samestate
