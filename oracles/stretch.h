#pragma once

#include "oracles/judge.h"

/// Tolerances for part of a sequence, in which the kernel may start from a state that already has an error
/// (BOUNDS 10.4).
namespace samestate {

/// As bound_of in path.h, with the first segment starting from the error `carried_in` (null if it has none).
[[nodiscard]] Bound bound_of_stretch(const Sequence<double>& x, const Path& path, const Contract& contract,
                                     const Family& family, Mode mode, bool l2norm,
                                     const StateError* carried_in);

/// As oracle_of in judge.h, if the kernel starts from a state that has the error `carried_in` (null if it has
/// none).
[[nodiscard]] HeadOracle oracle_of_stretch(const Sequence<double>& x, const Path& path,
                                           const Contract& contract, const Family& family, bool l2norm,
                                           const StateError* carried_in);

/// The tokens from `begin` on, with the final state: this is the part to judge if the tokens before it are
/// there only to produce the state.
[[nodiscard]] HeadOracle last_tokens(HeadOracle oracle, const Sequence<double>& x, Index begin);

}  // namespace samestate
