#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "harness/processes/pool.h"

/// The messages between rank 0 and the ranks that run jobs for it, and their encoding as bytes. All ranks run
/// the same build, as the first message of each confirms, so the layout has no version of its own.
namespace samestate {

/// A rank is ready, or says why it cannot be.
struct RankHello {
  std::string build;    ///< version and kernels: equal on all ranks
  std::string command;  ///< its arguments: equal on all ranks
  std::string where;    ///< the machine, in words for a person
  std::string refused;  ///< empty if it is ready
};

/// Rank 0 starts to hand out jobs, and says how they are run. Every run that begins has a number, so that
/// late messages are recognised.
struct RankBegin {
  std::uint64_t run = 0;
  WorkerOptions options = {};
  double interval = 0.0;  ///< seconds between two reports if nothing else makes one due
};

/// Jobs for one rank.
struct RankPiece {
  std::uint64_t run = 0;
  std::vector<Job> jobs = {};
};

/// Rank 0 takes back the jobs that were not started.
struct RankRecall {
  std::uint64_t run = 0;
};

/// The progress of a rank since its last report.
struct RankReport {
  struct Done {
    std::int64_t index = 0;
    JobResult result = {};
  };
  std::uint64_t run = 0;
  bool wants = false;                       ///< asks for another piece
  std::vector<std::int64_t> started = {};   ///< jobs, by Job::index
  std::vector<Done> done = {};              ///< in order of completion
  std::vector<std::int64_t> returned = {};  ///< jobs that were not started and will not be
};

/// The reason that ends a rank: the Error of a job, as Pool::run throws it.
struct RankFailure {
  std::string error;
};

using RankMessage = std::variant<RankHello, RankBegin, RankPiece, RankRecall, RankReport, RankFailure>;

[[nodiscard]] std::string text_of_message(const RankMessage& message);

/// Throws Error if the text is not a valid message.
[[nodiscard]] RankMessage parse_message(std::string_view text);

}  // namespace samestate
