#pragma once

#include "oracles/judge.h"

/// Tolerances of a stretch of a sequence, whose first state a kernel may have been off by already (BOUNDS 10.4).
namespace samestate {

/// As bound_of in path.h, the first segment from `carried_in` (null: none).
[[nodiscard]] Bound bound_of_stretch(const Sequence<double>& x, const Path& path, const Contract& contract,
                                     const Family& family, Mode mode, bool l2norm,
                                     const StateError* carried_in);

/// As oracle_of in judge.h, from an initial state that the kernel's own is off by as `carried_in` says (null: by nothing).
[[nodiscard]] HeadOracle oracle_of_stretch(const Sequence<double>& x, const Path& path,
                                           const Contract& contract, const Family& family, bool l2norm,
                                           const StateError* carried_in);

/// The tokens from `begin` on, with the final state: what is judged of a stretch whose first tokens stand there for the
/// state's sake.
[[nodiscard]] HeadOracle last_tokens(HeadOracle oracle, const Sequence<double>& x, Index begin);

}  // namespace samestate
