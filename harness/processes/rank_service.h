#pragma once

#include "harness/processes/pool.h"
#include "harness/processes/rank_link.h"
#include "harness/processes/rank_messages.h"

namespace samestate {

/// A rank other than 0: says `hello`, runs the jobs that rank 0 hands out (HandOut) in processes of a pool of its own,
/// and returns when rank 0 has ended. What goes wrong here is said to rank 0. A job that costs a process sends back those
/// that wait behind it, so that rank 0 decides whether its kernel goes on. `devices`: those of
/// this rank (WorkerOptions::devices). See WorkerProcess for what it asks of the caller.
void serve_rank(RankLink& link, const RankHello& hello, const JobRunner& run, Devices* devices = nullptr);

}  // namespace samestate
