#pragma once

#include "fuzz/plan/factors.h"
#include "harness/cases/system.h"

/// The factors of a case that say how many tokens there are, and how they are cut (factors.h).
namespace samestate {

/// So many sequences, empty ones among them of c.T tokens together: from the first to the last, as far as the
/// tokens go, and the last is empty only where there are few.
void pack(Case& c, Index sequences, const Dice& dice);

/// The tokens as a kernel in chunks sees them.
[[nodiscard]] Factor tokens_by_chunk();

/// Chunks of more than a tile of 64 tokens: one of them, or several. What goes wrong behind the first 64 rows of a chunk shows in
/// no shorter one, whatever the other choices are.
[[nodiscard]] Factor tokens_beyond_tile();

/// Tokens before the decoded ones.
[[nodiscard]] Factor prefilled(const CaseForm& decoded);

/// How many sequences a packed form has.
[[nodiscard]] Factor sequences(const CaseForm& packed);

}  // namespace samestate
