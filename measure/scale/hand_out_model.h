#pragma once

#include <cstdint>
#include <span>

/// The time of a run on many ranks (harness/processes/hand_out.h), computed from what cases took on one, for
/// numbers of ranks that are not available. It uses the same rule for pieces as a real run; machines, network
/// and rank 0 are modelled by a few numbers.
namespace samestate {

/// A case that ran: its estimated work in the plan, and its actual time.
struct CaseSeconds {
  double work = 1.0;     ///< judging_work
  double seconds = 0.0;  ///< on one thread
};

struct HandOutModel {
  std::int64_t cases = 0;  ///< for all ranks; the costs are repeated in order until there are that many
  int ranks = 1;           ///< with one thread each, including rank 0
  int shards = 1;  ///< independent runs, each with its own rank 0 and an equal share of the ranks and cases
  double latency = 2e-3;  ///< seconds between a rank and rank 0, one way: both wires check every millisecond
  /// Costs of rank 0, which does one thing at a time: per message, and per case, from its place in the plan
  /// to its line in the run file.
  double message_seconds = 50e-6, case_seconds = 90e-6;
};

struct HandOutTime {
  double seconds = 0.0;     ///< the duration of the run, without planning
  double efficiency = 0.0;  ///< seconds of all cases / (ranks x seconds of the run)
  double idle = 0.0;        ///< share of their time in which judging ranks wait for a piece or for the end
  double rank_0 =
      0.0;  ///< share of the time in which rank 0 hands out pieces and takes results: at 1 the run waits for
            ///< it
  std::int64_t pieces = 0;  ///< over all shards
  double total_cost = 0.0;  ///< seconds of all cases
};

/// Throws Error for invalid ranks or shards, if there are no cases, and if no case took any time.
[[nodiscard]] HandOutTime time_of(std::span<const CaseSeconds> costs, const HandOutModel& model);

}  // namespace samestate
