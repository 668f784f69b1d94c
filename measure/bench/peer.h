#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "harness/cases/case_line.h"
#include "harness/processes/line_process.h"

/// Somebody else's kernels, timed by a process of their own in turns with ours (docs/do/bench.md). Nothing that
/// it does is trusted: it may die, hang or talk nonsense.
namespace samestate {

/// What the peer said of one case; exactly one of `seconds`, `unsupported` and `problem` says something.
struct PeerAnswer {
  std::string kernel;
  std::vector<double> seconds;  ///< of one call each
  std::string note;
  std::string unsupported;  ///< why it does not run this case
  std::string problem;      ///< what went wrong: one line for a person
};

class Peer {
 public:
  /// Starts `/bin/sh -c command`, whose stdin and stdout are the two ends of the conversation. Throws Error
  /// where no process can be made.
  Peer(std::string command, double timeout_seconds);

  /// One line out, one line back. After a problem the process is ended, and started again for the next case,
  /// twice at most.
  [[nodiscard]] PeerAnswer ask(const Case& c, double seconds);

 private:
  void start();

  std::string command_;
  double timeout_;
  LineProcess process_;
  int starts_ = 0;
  std::int64_t id_ = 0;
};

/// The line that asks for a case: its number, case line and parsed fields.
[[nodiscard]] std::string peer_request(std::int64_t id, const Case& c, double seconds);

/// Reads an answer. Whatever is not one becomes `problem`.
[[nodiscard]] PeerAnswer parse_peer_answer(std::int64_t id, const std::string& line);

}  // namespace samestate
