#pragma once

#include <cstdint>
#include <vector>

#include "optimized/call.h"

/// The value heads of a call over ranks: in the form head_parallel Arguments::cuts ascends from 0 to Hv, and
/// rank r holds the value heads [c[r], c[r+1]), none if the two are equal, and copies of the key heads that
/// serve them. Without cuts one rank holds all. A head has the same bits whichever rank holds it.
namespace samestate::calls {

/// Consecutive value heads that one rank holds, with the key heads that serve them.
struct HeadPart {
  std::int64_t rank = 0;
  std::int64_t begin = 0, end = 0;  ///< value heads of the call
  /// Key heads of the call, each once, in the order in which the value heads use them. A cut inside a group
  /// of value heads leaves its key head with both ranks.
  std::vector<std::int64_t> keys;
  /// [end - begin], for each value head of the rank: the index of its key head in `keys`. No head map
  /// describes this if a cut is inside a group.
  std::vector<std::int64_t> key_of;
};

/// The cuts of a call; without any, one rank holds all. Throws Error unless they ascend from 0 to Hv.
[[nodiscard]] std::vector<std::int64_t> checked_head_cuts(const Arguments& arguments, const Sizes& sizes);

/// The ranks that hold at least one head, in order.
[[nodiscard]] std::vector<HeadPart> head_parts_of(const Arguments& arguments, const Sizes& sizes,
                                                  const std::vector<std::int64_t>& cuts);

}  // namespace samestate::calls
