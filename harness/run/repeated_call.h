#pragma once

#include "harness/run/call_loop.h"

/// One call made several times.
namespace samestate {

/// Before each call two others on the same memory, whose results are thrown away: with other data,
/// another scale and one token less (not packed), and with other data, another scale and other lengths (packed)
/// of the same shape. Indices stay: others may be none. Then the
/// call, and once more, which must give the same bits. What is kept by address, by shape or by the number of
/// calls is wrong in one of them. A kernel may refuse the calls that are thrown away. Throws Unrepeatable.
[[nodiscard]] OneCall repeated(OneCall call);

/// Each call without final_state, and again with it: o is that of the first, the state that of the second.
[[nodiscard]] OneCall without_state(OneCall call);

}  // namespace samestate
