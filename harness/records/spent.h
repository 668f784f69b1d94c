#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace samestate {

/// How the time of a case was spent, for a kernel that runs in another process and reports it
/// (docs/subjects.md). The rest of the case's seconds is judging. Members are 0 if nothing was reported.
struct Spent {
  double start = 0.0;    ///< until its process was ready, including imports
  double waiting = 0.0;  ///< waiting for a process that was busy with the calls of other cases
  double compile = 0.0, tune = 0.0, copy = 0.0, kernel = 0.0;  ///< as reported by the process
  double passing = 0.0;       ///< the rest of the calls: messages, and writing and reading tensors
  std::int64_t calls = 0;     ///< calls that it answered
  std::int64_t compiled = 0;  ///< kernels that were compiled
  std::int64_t loaded = 0;    ///< kernels that were loaded from a cache on disk instead
  bool lost = false;          ///< the process ended, or had to be ended

  [[nodiscard]] double seconds() const { return start + waiting + compile + tune + copy + kernel + passing; }
  [[nodiscard]] bool none() const { return calls == 0 && start == 0.0; }
  Spent& operator+=(const Spent& other);
};

/// The members that are not 0, by name: start, waiting, compile, tune, copy, kernel, passing, calls,
/// compiled, loaded and lost.
[[nodiscard]] std::map<std::string, double> numbers_of(const Spent& spent);

/// The inverse. Throws Error for an unknown name, and for a number that is negative or not finite.
[[nodiscard]] Spent spent_of(const std::map<std::string, double>& numbers);

/// "compile=0.25 compiled=3 start=1.5"; empty if there is nothing to report.
[[nodiscard]] std::string spent_text(const Spent& spent);

/// Reads that text. Throws Error as spent_of does, and for a value that is not a number.
[[nodiscard]] Spent parse_spent(std::string_view text);

}  // namespace samestate
