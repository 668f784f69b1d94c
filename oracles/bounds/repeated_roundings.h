#pragma once

#include "oracles/path.h"
#include "reference/contract.h"

namespace samestate {

/// Standard deviations of what operands that repeat do to a head, where their roundings add up.
struct RepeatedRoundings {
  Vector<double> rows;   ///< [T] of o, 2-norms
  Vector<double> state;  ///< [dk] of the rows of the final state
};

/// Two operands of the same numbers round alike: what they do to the outputs adds up over their tokens, by m of them
/// m times and not sqrt(m) times, where the second moments of the modes prob and semi take every token's by itself.
/// Here the tokens of one operand share one error, whose deviation is that of any rounding (u / sqrt 3 of each element,
/// F4), and go to the outputs together, across chunks and segments. `chunked` and `recurrent` say what of the contract
/// rounds. Per point, in the notation of chunked.cpp:
///   v_new, v_decayed   without the delta rule, rows of beta V and of e^{G_C - G} beta V; in one format they may be the
///                      same numbers, and share the error. Weight on o_i: P_ij, or through what the state keeps of k_j.
///   beta_v             of the delta rule: rows of beta V, weight P T, or K_d^T T through the state.
///   qk                 rows of k in products and in the state, without the delta rule: the V' of their tokens add up.
///   k_decayed          rows of e^{G_C - G} k in the state, without the delta rule.
///   P                  of equal keys that no decay tells apart: the V' of their tokens add up.
/// Where weights are not kept token by token (v_new, v_decayed, beta_v) an operand of two tokens or more counts beside
/// what the modes count of it, sqrt(m^2 + m) for m; else the excess alone. With the delta rule V' and the residual hold
/// what the state does, and do not repeat; rounded keys of pairs that do are Policy::state_mode.
[[nodiscard]] RepeatedRoundings repeated_roundings(const Sequence<double>& x, const Path& path,
                                                   const Contract& contract, bool delta);

}  // namespace samestate
