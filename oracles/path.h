#pragma once

#include <cstdint>
#include <vector>

#include "oracles/batch.h"
#include "oracles/systems/family.h"

namespace samestate {

/// A range of tokens that one kernel call evaluates in one form, with the state carried in and out.
struct Segment {
  Index tokens = 0;
  Index chunk = 0;              ///< tokens per chunk; 0 means the recurrent form
  bool token_by_token = false;  ///< decode: one call per token
  /// [ranks + 1] for tokens divided over ranks: rank r holds the tokens [c[r], c[r+1]) of the segment; empty
  /// if one rank holds all.
  std::vector<Index> cuts = {};
  /// [ranks + 1] the same for value heads, which are independent, so no bound depends on it. Empty if one
  /// rank holds all.
  std::vector<Index> head_cuts = {};
};

/// How the tokens of a call, or its value heads, are divided among ranks.
struct Ranks {
  Index count = 1;
  bool drawn =
      false;  ///< arbitrary cuts, drawn from the seed, some of them equal; if false, equal parts of whole
              ///< chunks
  std::uint64_t seed = 0;  ///< seed of the drawn cuts
  Index heads = 0;         ///< the number of value heads if they are divided; 0 if tokens are

  /// The cuts of a call with `tokens` tokens: [count + 1], ascending from 0; empty for one rank. Equal parts
  /// have ceil(T / count) tokens, rounded up to whole chunks: the last part that holds tokens may have fewer,
  /// and the parts after it have none.
  [[nodiscard]] std::vector<Index> cuts(Index tokens, Index chunk) const;
  /// One call with that many tokens, in chunks.
  [[nodiscard]] Segment call(Index tokens, Index chunk) const;
};

/// How a sequence is evaluated, from its first token to its last. A whole run, a split one, prefill and
/// decode are all paths.
using Path = std::vector<Segment>;

/// All tokens in one call.
[[nodiscard]] Path whole(Index tokens, Index chunk, const Ranks& ranks = {});

/// The path cut in two at token `at`, with a call for each part; `at` is in 0..tokens.
[[nodiscard]] Path split(Index tokens, Index chunk, Index at, const Ranks& ranks = {});

/// The tokens [0, prefill) at once, then one call per token to the recurrent kernel.
[[nodiscard]] Path prefill_and_decode(Index tokens, Index chunk, Index prefill, const Ranks& ranks = {});

/// The path of sequence n of a batch whose rows follow `rows`: the same path or, for a packed batch, whose
/// path is one segment, the sequence's part of it.
[[nodiscard]] Path path_of_sequence(const Path& rows, const BatchShape& shape, Index n);

/// The path with one segment for each part that a rank holds.
[[nodiscard]] Path part_by_part(const Path& path);

/// The bound of a path: the bounds of its segments, each starting from the state error that its predecessor
/// left (BOUNDS 4-5) or that the composition of the maps before it made (BOUNDS 5.3). Throws Error if the
/// tokens of the segments do not sum to those of the sequence.
[[nodiscard]] Bound bound_of(const Sequence<double>& x, const Path& path, const Contract& contract,
                             const Family& family, Mode mode, bool l2norm);

}  // namespace samestate
