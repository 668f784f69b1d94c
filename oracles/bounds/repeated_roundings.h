#pragma once

#include "oracles/path.h"
#include "reference/contract.h"

namespace samestate {

/// Standard deviations of the errors of a head that come from repeated operands, whose roundings add up.
struct RepeatedRoundings {
  Vector<double> rows;   ///< [T] for o, 2-norms
  Vector<double> state;  ///< [dk] for the rows of the final state
};

/// Two operands with the same numbers round alike, so their effects on the outputs add up over their tokens:
/// m of them add m times and not sqrt(m) times, whereas the second moments of the modes prob and semi treat
/// every token separately. Here the tokens of one operand share one error, with the deviation of any rounding
/// (u / sqrt 3 for each element, F4), and reach the outputs together, across chunks and segments. `chunked`
/// and `recurrent` say which points of the contract round. Per point, in the notation of chunked.cpp:
///   v_new, v_decayed   without the delta rule, rows of beta V and of e^{G_C - G} beta V; in one format they may be the
///                      same numbers and share the error. Weight on o_i: P_ij, or through what the state keeps of k_j.
///   beta_v             with the delta rule: rows of beta V, weight P T, or K_d^T T through the state.
///   qk                 rows of k in products and in the state, without the delta rule: the V' of their tokens add up.
///   k_decayed          rows of e^{G_C - G} k in the state, without the delta rule.
///   P                  for equal keys that no decay distinguishes: the V' of their tokens add up.
/// Where weights are not kept token by token (v_new, v_decayed, beta_v), an operand of m >= 2 tokens counts
/// in addition to what the modes count for it, sqrt(m^2 + m) for m; elsewhere only the excess counts. With
/// the delta rule V' and the residual depend on the state and do not repeat; rounded keys of repeated pairs
/// are the business of Policy::state_mode.
[[nodiscard]] RepeatedRoundings repeated_roundings(const Sequence<double>& x, const Path& path,
                                                   const Contract& contract, bool delta);

}  // namespace samestate
