#pragma once

#include <cstdint>
#include <vector>

#include "optimized/call.h"

/// The tokens of a call over ranks (Arguments::cuts), and the part of each sequence that a rank holds.
namespace samestate::calls {

/// Consecutive tokens of one sequence that one rank holds.
struct Part {
  std::int64_t rank = 0;
  std::int64_t sequence = 0;
  std::int64_t begin = 0, end = 0;  ///< from the sequence's first token
  bool passes_on = false;           ///< the sequence continues in a later rank
};

/// The cuts of a call; without any, one rank holds all. Throws Error unless they ascend from 0 to T.
[[nodiscard]] std::vector<std::int64_t> checked_cuts(const Arguments& arguments, const Sizes& sizes);

/// The parts of each sequence, in order. Parts without tokens are left out, except that a sequence without
/// tokens has one, on the rank at its position.
[[nodiscard]] std::vector<Part> parts_of(const Arguments& arguments, const Sizes& sizes,
                                         const std::vector<std::int64_t>& cuts, std::int64_t sequence);

/// The tokens [begin, end) of the head. Its states are those of the whole sequence.
[[nodiscard]] Head tokens_of(Head head, std::int64_t begin, std::int64_t end);

}  // namespace samestate::calls
