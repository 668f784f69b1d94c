#pragma once

#include "oracles/bounds/bound.h"

namespace samestate {

/// The bound of the chunked form, `chunk` tokens at a time with a last chunk that may be shorter, in O(dk^2 L
/// + dk dv L) per chunk of L tokens. BOUNDS 5. Reads every field of the contract. `carried_in` is the error
/// of the initial state, null if it has none. `key_norm_error` is l2norm_error if the kernel normalises q and
/// k itself (sequence.q, k hold the exact result), else 0. `trajectory` is the reference's result for this
/// sequence, if it has been computed already. T = 0 returns the error carried in. Throws Error if chunk < 1
/// or shapes disagree.
[[nodiscard]] Bound bound_chunked(const Sequence<double>& sequence, const Contract& contract,
                                  Structure structure, Mode mode, Index chunk,
                                  const StateError* carried_in = nullptr, double key_norm_error = 0.0,
                                  const Trajectory<double>* trajectory = nullptr,
                                  const ExponentialModel& exponential = {});

}  // namespace samestate
