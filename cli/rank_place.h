#pragma once

namespace samestate::cli {

/// The index of this process among `count`, as mpirun gives it in the environment; 0 of 1 if it was not
/// started by mpirun.
struct RankPlace {
  int rank = 0, ranks = 1;
  int local = 0;   ///< index among the processes on its host
  int locals = 0;  ///< number of processes on its host; 0 if unknown
};
/// Throws Error if the environment has invalid values.
[[nodiscard]] RankPlace rank_place();

/// The threads of a verb without --threads: all of the machine, and one for a rank, since mpirun starts as
/// many ranks as it has cores.
[[nodiscard]] int default_threads();

}  // namespace samestate::cli
