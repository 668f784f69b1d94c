#pragma once

#include "optimized/cpu/layout.h"

/// The recurrent form on the CPU (EQUATIONS 5.5, GDN-34..40), all systems from one source:
///   S' = e^g S,  u = beta (v - S'^T k)  or  u = v,  S = S' + k u^T,  o = (scale q)^T S.
/// Rounding points: q and k (contract.qk), o (contract.output), and S after each step (contract.state); the
/// output reads S before it is rounded (BOUNDS 4). Where contract.reads_old_state both reads are of the state
/// before the token: u = beta (v - e^g S^T k), o = scale (e^g S^T q + u (k . q)). `chunk` is not read. A task
/// is one head's block of value columns, whose state stays in the level-1 cache.
namespace samestate::cpu {

/// Runs a call with plain fp32 sums. Throws Error where the views are impossible (checked_sizes).
template <const System& system>
[[nodiscard]] Outcome run_recurrent(const Arguments& arguments, const Contract& contract);

/// The same with the sums of the contract emulated: the twin.
[[nodiscard]] Outcome run_recurrent_twin(const System& system, const Arguments& arguments,
                                         const Contract& contract);

}  // namespace samestate::cpu
