#pragma once

#include "optimized/cpu/layout.h"

/// The recurrent form on the CPU (EQUATIONS 5.5, GDN-34..40), for all systems from one source:
///   S' = e^g S,  u = beta (v - S'^T k)  or  u = v,  S = S' + k u^T,  o = (scale q)^T S.
/// Rounding points: q and k (contract.qk), o (contract.output), and S after each step (contract.state); the
/// output reads S before it is rounded (BOUNDS 4). With contract.reads_old_state both reads use the state
/// before the token: u = beta (v - e^g S^T k), o = scale (e^g S^T q + u (k . q)). `chunk` is not read. A task
/// is one head's block of value columns, whose state stays in the L1 cache.
namespace samestate::cpu {

/// Runs a call with plain fp32 sums. Throws Error if the views are inconsistent (checked_sizes).
template <const System& system>
[[nodiscard]] Outcome run_recurrent(const Arguments& arguments, const Contract& contract);

/// The same with the contract's sums emulated: the twin.
[[nodiscard]] Outcome run_recurrent_twin(const System& system, const Arguments& arguments,
                                         const Contract& contract);

}  // namespace samestate::cpu
