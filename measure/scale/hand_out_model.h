#pragma once

#include <cstdint>
#include <span>

/// A run on so many ranks (harness/processes/hand_out.h), computed from what cases took on one: for more ranks than
/// anybody has at hand. The rule of the pieces is that of the run; machines, network and rank 0 are a few numbers.
namespace samestate {

/// A case that ran: what the plan took it for, and what it took.
struct CaseSeconds {
  double work = 1.0;     ///< judging_work
  double seconds = 0.0;  ///< of one thread
};

struct HandOutModel {
  std::int64_t cases =
      0;          ///< of all ranks; the costs come again and again in their order until there are so many
  int ranks = 1;  ///< of one thread each; rank 0 among them
  int shards =
      1;  ///< runs beside each other, each with a rank 0 of its own and as many of the ranks and cases
  double latency = 2e-3;  ///< seconds between a rank and rank 0, one way: both wires look every millisecond
  /// Of rank 0, which does one thing at a time: for a message; for a case, from its place in the plan to its line in the
  /// run file.
  double message_seconds = 50e-6, case_seconds = 90e-6;
};

struct HandOutTime {
  double seconds = 0.0;     ///< of the run, the planning left out
  double efficiency = 0.0;  ///< seconds of all cases / (ranks x seconds of the run)
  double idle = 0.0;        ///< share of their time in which ranks that judge wait for a piece or for the end
  double rank_0 =
      0.0;  ///< share of the time in which rank 0 hands out and takes: at 1 it is what the run waits for
  std::int64_t pieces = 0;  ///< of all shards
  double total_cost = 0.0;  ///< seconds of all cases
};

/// Throws Error for ranks, shards or cases that are none, and where no case took any time.
[[nodiscard]] HandOutTime time_of(std::span<const CaseSeconds> costs, const HandOutModel& model);

}  // namespace samestate
