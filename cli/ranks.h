#pragma once

#include <string>
#include <vector>

#include "cli/rank_place.h"
#include "harness/processes/hand_out.h"

/// The ranks of a run under mpirun (docs/do/mpi.md). Rank 0 runs the verb as a single process would, but hands out its
/// jobs; the other ranks run jobs until it ends. MPI itself is in a separate program, samestate-mpi (cli/mpi), which
/// takes the place of each process that mpirun started and transports its frames. So no process that forks workers
/// contains MPI.
namespace samestate::cli {

/// Turns this process into one of the ranks if there are several; called before anything else is begun. Returns in a
/// child of the process that mpirun started. Throws Error for a verb whose work ranks do not share, and in a build
/// without MPI.
void join_ranks(const std::string& verb, const std::vector<std::string>& arguments);

/// Returns true if this process exists to run what rank 0 hands out, by `serve`.
[[nodiscard]] bool serves();

/// Runs the jobs and returns the exit code. `plugins` are those of the command, `devices` those of this rank.
[[nodiscard]] int serve(const std::vector<std::string>& plugins, const JobRunner& run,
                        Devices* devices = nullptr);

/// Tells rank 0, whose exit code is that of all ranks, why this rank cannot serve. Returns the exit code of this rank.
int refuse(const std::string& why);

/// Returns the object through which rank 0 hands out jobs; null if there is only one rank.
[[nodiscard]] HandOut* hand_out(const std::vector<std::string>& plugins);

/// Returns ", 4 ranks, 0.31 MB to rank 0" for the summary of a run; empty if there is only one rank.
[[nodiscard]] std::string ranks_text();

}  // namespace samestate::cli
