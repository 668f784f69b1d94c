#pragma once

#include <functional>
#include <vector>

#include "optimized/cpu/layout.h"
#include "optimized/ranks.h"

/// The chunked form over ranks on the CPU, for all systems from one source: each rank holds a part of the
/// tokens (Arguments::cuts), and the threads take ranks as they become free. The steps are:
///   map      for each part of a sequence that continues in a later rank: S |-> M S + N, from its tokens alone. [M | N]
///            is the end state of a chunked run on the values [0 | V] from the states [I | 0]; without the delta rule M is
///            a number, one column of that run.
///   compose  S <- M S + N over the preceding parts, in order, from the initial state: in fp32, rounded as the state is
///   outputs  the chunked form on the part, from the state that reached it; the last part leaves the final state
/// A task is one head of one part. No task of a step reads what another task of it writes, so the bits depend
/// on the cuts and on nothing else.
namespace samestate::cpu {

/// The order in which one thread runs the `count` tasks of a step: places[i] is the i-th. If empty, threads
/// take tasks as they become free.
using TaskOrder = std::function<std::vector<std::int64_t>(std::int64_t count)>;

/// Runs a call with plain fp32 sums. Throws Error if the views or the cuts are inconsistent, or chunk < 1.
template <const System& system>
[[nodiscard]] Outcome run_sequence_parallel(const Arguments& arguments, const Contract& contract);

/// The same, with the ranks' work in a given order.
[[nodiscard]] Outcome run_sequence_parallel_in(const System& system, const Arguments& arguments,
                                               const Contract& contract, const TaskOrder& order);

/// The same with the contract's sums emulated: the twin.
[[nodiscard]] Outcome run_sequence_parallel_twin(const System& system, const Arguments& arguments,
                                                 const Contract& contract);

}  // namespace samestate::cpu
