#pragma once

#include "harness/run/call_loop.h"

/// Repeats a call to detect kernels that keep something between calls.
namespace samestate {

/// Precedes each call by others on the same memory whose results are discarded. The first two have other data
/// and another scale, and one token less (not packed) or other lengths (packed) with the same shape. Then
/// come calls that differ from it in only one field: the scale, whether q and k are normalised, the map of
/// heads, beta or, for packed sequences, the lengths. Indices are kept, because others may be invalid. Then
/// the call itself is made, twice, and must give the same bits; if the kernel is not `deterministic`, it is
/// made once or twice, as the data choose, and the outputs are only judged. Anything that is cached by address, by shape,
/// by a key that lacks one of these fields, or by the number of calls is wrong in one of them. A kernel may
/// refuse the calls whose results are discarded. Throws Unrepeatable.
[[nodiscard]] OneCall repeated(OneCall call, bool deterministic = true);

/// Makes each call without final_state, and again with it: o is taken from the first, the state from the
/// second.
[[nodiscard]] OneCall without_state(OneCall call);

}  // namespace samestate
