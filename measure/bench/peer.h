#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "harness/cases/case_line.h"
#include "harness/processes/line_process.h"

/// Foreign kernels, timed by a process of their own alternating with ours (docs/bench.md). The process is not
/// trusted: it may die, hang, or answer nonsense.
namespace samestate {

/// The peer's answer for one case; exactly one of `seconds`, `unsupported` and `problem` is set.
struct PeerAnswer {
  std::string kernel;
  std::vector<double> seconds;  ///< for one call each
  std::string note;
  std::string unsupported;  ///< why it does not run this case
  std::string problem;      ///< what went wrong, in one line for a person
};

class Peer {
 public:
  /// Starts `/bin/sh -c command` and talks to it over its stdin and stdout. Throws Error if no process can be
  /// created.
  Peer(std::string command, double timeout_seconds);

  /// Sends one line and reads one line. After a problem the process is ended, and restarted for the next
  /// case, at most twice.
  [[nodiscard]] PeerAnswer ask(const Case& c, double seconds);

 private:
  void start();

  std::string command_;
  double timeout_;
  LineProcess process_;
  int starts_ = 0;
  std::int64_t id_ = 0;
};

/// The line that asks for a case: its number, its case line, and the parsed fields.
[[nodiscard]] std::string peer_request(std::int64_t id, const Case& c, double seconds);

/// Reads an answer. An invalid answer becomes `problem`.
[[nodiscard]] PeerAnswer parse_peer_answer(std::int64_t id, const std::string& line);

}  // namespace samestate
