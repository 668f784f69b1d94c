#pragma once

#include "fuzz/plan/factors.h"
#include "harness/cases/system.h"

/// The factors of a case that determine how many tokens there are, and how they are divided (factors.h).
namespace samestate {

/// Divides c.T tokens into `sequences` sequences, some of them empty, from the first to the last as far as
/// the tokens go; the last is empty only if there are few.
void pack(Case& c, Index sequences, const Dice& dice);

/// The tokens as a chunked kernel sees them.
[[nodiscard]] Factor tokens_by_chunk();

/// Chunks with more than a tile of 64 tokens: one such chunk, or several. An error after the first 64 rows of
/// a chunk does not occur in a shorter one, whatever the other choices are.
[[nodiscard]] Factor tokens_beyond_tile();

/// Tokens before the decoded ones.
[[nodiscard]] Factor prefilled(const CaseForm& decoded);

/// The number of sequences in a packed form.
[[nodiscard]] Factor sequences(const CaseForm& packed);

}  // namespace samestate
