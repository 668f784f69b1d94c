#pragma once

#include "optimized/cpu/sequence_parallel.h"
#include "optimized/head_ranks.h"

/// The heads of a call over ranks on the CPU, all systems from one source: each rank holds a run of value heads
/// (Arguments::cuts) and the key heads that serve them, and the threads take ranks as they come. A rank copies its own
/// heads into memory of its own, as those of a machine have it, and reads nothing else; it runs the chunked form on them,
/// by a table from its value heads to its key heads, and its outputs are gathered into the call's. Nothing is rounded on
/// the way, so that any cuts give the bits of one rank, which are the chunked form's.
namespace samestate::cpu {

/// Runs a call. Throws Error where the views or the cuts are impossible, or chunk < 1.
template <const System& system>
[[nodiscard]] Outcome run_head_parallel(const Arguments& arguments, const Contract& contract);

/// The same with the ranks in a given order.
[[nodiscard]] Outcome run_head_parallel_in(const System& system, const Arguments& arguments,
                                           const Contract& contract, const TaskOrder& order);

}  // namespace samestate::cpu
