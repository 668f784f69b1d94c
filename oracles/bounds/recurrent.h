#pragma once

#include "oracles/bounds/bound.h"

namespace samestate {

/// The bound of the recurrent form (and of decode), token by token, in O(dk^2 + dk dv) each. BOUNDS 4. Reads
/// `qk`, `state`, `output`, `accumulator` and `exponential` of the contract; `state` is stored after every
/// token. `carried_in` is the error of the initial state if an earlier segment produced it; null if the
/// kernel is given sequence.initial_state (which it stores in `state`). `key_norm_error` is l2norm_error if
/// the kernel normalises q and k itself (sequence.q, k hold the exact result), else 0. T = 0 returns the
/// error of the initial state. Throws Error if shapes disagree.
[[nodiscard]] Bound bound_recurrent(const Sequence<double>& sequence, const Contract& contract,
                                    Structure structure, Mode mode, const StateError* carried_in = nullptr,
                                    double key_norm_error = 0.0, const ExponentialModel& exponential = {});

}  // namespace samestate
