#pragma once

#include "harness/run/call_loop.h"

/// One call made several times.
namespace samestate {

/// Before each call others on the same memory, whose results are thrown away. First two with other data and another scale, and
/// one token less (not packed) or other lengths (packed) of the same shape. Then calls that differ from it in one field
/// alone: the scale, whether q and k are normalised, the map of heads, beta or, of packed sequences, the lengths.
/// Indices stay: others may be none. Then the call, and once more, which must give the same bits. What is kept by address,
/// by shape, by a key that lacks one of these fields, or by the number of calls is wrong in one of them. A kernel may refuse
/// the calls that are thrown away. Throws Unrepeatable.
[[nodiscard]] OneCall repeated(OneCall call);

/// Each call without final_state, and again with it: o is that of the first, the state that of the second.
[[nodiscard]] OneCall without_state(OneCall call);

}  // namespace samestate
