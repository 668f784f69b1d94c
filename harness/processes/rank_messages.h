#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "harness/processes/pool.h"

/// What rank 0 and the ranks that run jobs for it say to each other, as bytes and back. All ranks run one build, which
/// the first message of each says; so the layout has no version of its own.
namespace samestate {

/// A rank is ready, or why it cannot be.
struct RankHello {
  std::string build;    ///< version and kernels: equal on all ranks
  std::string command;  ///< its arguments: equal on all ranks
  std::string where;    ///< the machine, for a person
  std::string refused;  ///< empty: it is ready
};

/// Rank 0 begins to hand out: how the jobs that follow are run. Every begun run has its number, so that what is late is
/// known.
struct RankBegin {
  std::uint64_t run = 0;
  WorkerOptions options = {};
  double interval = 0.0;  ///< seconds between two reports that nothing else makes due
};

/// Jobs for one rank.
struct RankPiece {
  std::uint64_t run = 0;
  std::vector<Job> jobs = {};
};

/// Rank 0 wants back what was not begun.
struct RankRecall {
  std::uint64_t run = 0;
};

/// What a rank did since its last report.
struct RankReport {
  struct Done {
    std::int64_t index = 0;
    JobResult result = {};
  };
  std::uint64_t run = 0;
  bool wants = false;                       ///< a further piece
  std::vector<std::int64_t> started = {};   ///< jobs by Job::index
  std::vector<Done> done = {};              ///< in order of finish
  std::vector<std::int64_t> returned = {};  ///< not begun, and will not be
};

/// What ends a rank: Error of a job, as Pool::run throws it.
struct RankFailure {
  std::string error;
};

using RankMessage = std::variant<RankHello, RankBegin, RankPiece, RankRecall, RankReport, RankFailure>;

[[nodiscard]] std::string text_of_message(const RankMessage& message);

/// Throws Error where the text is no message.
[[nodiscard]] RankMessage parse_message(std::string_view text);

}  // namespace samestate
