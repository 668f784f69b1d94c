#pragma once

namespace samestate::cli {

/// Which of how many this process is, as mpirun says it in the environment; 0 of 1 where it was not started so.
struct RankPlace {
  int rank = 0, ranks = 1;
  int local = 0;   ///< which of those on its host
  int locals = 0;  ///< how many those are; 0: not known
};
/// Throws Error if the environment says what is none.
[[nodiscard]] RankPlace rank_place();

/// Threads of a verb that --threads does not name: all of the machine, and of a rank one, since mpirun starts as many as
/// it has cores.
[[nodiscard]] int default_threads();

}  // namespace samestate::cli
