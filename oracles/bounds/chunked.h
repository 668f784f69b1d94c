#pragma once

#include "oracles/bounds/bound.h"

namespace samestate {

/// The bound of the chunked form, `chunk` tokens at a time, the last chunk ragged: O(dk^2 L + dk dv L) a
/// chunk of L tokens. BOUNDS 5. Reads every field of the contract. `carried_in`: error of the initial state,
/// null: none. `key_norm_error`: l2norm_error where the kernel normalises q and k itself (sequence.q, k hold
/// the exact result), else 0. `trajectory`: what the reference found for this sequence, to spare computing it
/// again. T = 0 returns the error carried in. Throws Error where chunk < 1 or shapes disagree.
[[nodiscard]] Bound bound_chunked(const Sequence<double>& sequence, const Contract& contract,
                                  Structure structure, Mode mode, Index chunk,
                                  const StateError* carried_in = nullptr, double key_norm_error = 0.0,
                                  const Trajectory<double>* trajectory = nullptr,
                                  const ExponentialModel& exponential = {});

}  // namespace samestate
