#pragma once

#include "harness/processes/pool.h"
#include "harness/processes/rank_link.h"
#include "harness/processes/rank_messages.h"

namespace samestate {

/// The work of a rank other than 0: sends `hello`, runs the jobs that rank 0 hands out (HandOut) in processes
/// of its own pool, and returns when rank 0 has ended. Errors are reported to rank 0. When a job costs a
/// process, the jobs that wait are sent back, so that rank 0 decides if their kernel continues. `devices` are
/// those of this rank (WorkerOptions::devices). See WorkerProcess for the requirements on the caller.
void serve_rank(RankLink& link, const RankHello& hello, const JobRunner& run, Devices* devices = nullptr);

}  // namespace samestate
