#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "optimized/call.h"

/// A call between ranks (Arguments::cuts): its tokens, and what each sequence has of them, or its heads.
namespace samestate::calls {

/// In which order the tasks of a step run, `count` of them by one thread: places[i] is the i-th. Empty: threads take them as
/// they come.
using TaskOrder = std::function<std::vector<std::int64_t>(std::int64_t count)>;

/// Consecutive tokens of one sequence that one rank holds.
struct Part {
  std::int64_t rank = 0;
  std::int64_t sequence = 0;
  std::int64_t begin = 0, end = 0;  ///< from the sequence's first token
  bool passes_on = false;           ///< the sequence goes on in a later rank
};

/// The cuts of a call: one rank holds all where it has none. Throws Error unless they ascend from 0 to T.
[[nodiscard]] std::vector<std::int64_t> checked_cuts(const Arguments& arguments, const Sizes& sizes);

/// The parts of each sequence, in order; those that hold no token are left out, but that a sequence without tokens has
/// one, on the rank where it stands.
[[nodiscard]] std::vector<Part> parts_of(const Arguments& arguments, const Sizes& sizes,
                                         const std::vector<std::int64_t>& cuts, std::int64_t sequence);

/// The tokens [begin, end) of the head. Its states are the whole sequence's.
[[nodiscard]] Head tokens_of(Head head, std::int64_t begin, std::int64_t end);

/// Consecutive value heads that one rank holds, with the key heads that serve them.
struct HeadPart {
  std::int64_t rank = 0;
  std::int64_t begin = 0, end = 0;  ///< value heads of the call
  /// Key heads of the call, each once, in the order in which the value heads meet them. A cut inside a group of value heads
  /// leaves its key head with both ranks.
  std::vector<std::int64_t> keys;
  /// [end - begin], by value head of the rank: its place in `keys`. No head map says it where a cut lies inside a group.
  std::vector<std::int64_t> key_of;
};

/// The same of value heads. Throws Error unless they ascend from 0 to Hv.
[[nodiscard]] std::vector<std::int64_t> checked_head_cuts(const Arguments& arguments, const Sizes& sizes);

/// The ranks that hold a head, in order.
[[nodiscard]] std::vector<HeadPart> head_parts_of(const Arguments& arguments, const Sizes& sizes,
                                                  const std::vector<std::int64_t>& cuts);

}  // namespace samestate::calls
