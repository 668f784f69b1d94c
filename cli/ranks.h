#pragma once

#include <string>
#include <vector>

#include "cli/rank_place.h"
#include "harness/processes/hand_out.h"

/// The ranks of a run under mpirun (docs/do/mpi.md). Rank 0 runs the verb as one process does, and hands its jobs out; the
/// others run jobs until it ends. MPI itself is a program of its own, samestate-mpi (cli/mpi), which takes the place of
/// each process that mpirun started and carries its frames: no process that forks workers has MPI in it.
namespace samestate::cli {

/// Before the verb runs, and before anything else is begun: where there are several ranks, becomes one of them. Returns in
/// a child of the process that mpirun started. Throws Error for a verb whose work ranks do not share, and for a build
/// without MPI.
void join_ranks(const std::string& verb, const std::vector<std::string>& arguments);

/// Whether this process is there to run what rank 0 hands out, by `serve`.
[[nodiscard]] bool serves();

/// Runs it and returns the exit code. `plugins`: those of the command; `devices`: those of this rank.
[[nodiscard]] int serve(const std::vector<std::string>& plugins, const JobRunner& run,
                        Devices* devices = nullptr);

/// Says to rank 0, whose exit code is that of all, why this rank cannot serve; the exit code of this one.
int refuse(const std::string& why);

/// What rank 0 hands out by; none where there is one rank.
[[nodiscard]] HandOut* hand_out(const std::vector<std::string>& plugins);

/// ", 4 ranks, 0.31 MB to rank 0" for the summary of a run; empty where there is one.
[[nodiscard]] std::string ranks_text();

}  // namespace samestate::cli
