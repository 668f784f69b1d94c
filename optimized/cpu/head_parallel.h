#pragma once

#include "optimized/cpu/sequence_parallel.h"
#include "optimized/head_ranks.h"

/// The heads of a call divided over ranks on the CPU, for all systems from one source: each rank holds
/// consecutive value heads (Arguments::cuts) and the key heads that serve them, and the threads take ranks as
/// they become free. A rank copies its own heads into memory of its own, as the ranks of a cluster hold them,
/// and reads nothing else. It runs the chunked form on them, with a table from its value heads to its key
/// heads, and its outputs are gathered into those of the call. Nothing is rounded in between, so any cuts
/// give the bits of one rank, which are those of the chunked form.
namespace samestate::cpu {

/// Runs a call. Throws Error if the views or the cuts are inconsistent, or chunk < 1.
template <const System& system>
[[nodiscard]] Outcome run_head_parallel(const Arguments& arguments, const Contract& contract);

/// The same, with the ranks evaluated in a given order.
[[nodiscard]] Outcome run_head_parallel_in(const System& system, const Arguments& arguments,
                                           const Contract& contract, const TaskOrder& order);

}  // namespace samestate::cpu
