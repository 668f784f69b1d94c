#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace samestate {

/// Where the seconds of a case went, of a kernel that runs in another process and says so itself (docs/lookup/subjects.md). Judging
/// is what remains of the case's seconds. Members are 0 where nothing was said.
struct Spent {
  double start = 0.0;    ///< until its process was ready, imports included
  double waiting = 0.0;  ///< for a process that was busy with the calls of other cases
  double compile = 0.0, tune = 0.0, copy = 0.0, kernel = 0.0;  ///< as the process says
  double passing = 0.0;       ///< the rest of the calls: messages, tensors written and read
  std::int64_t calls = 0;     ///< that it answered
  std::int64_t compiled = 0;  ///< kernels that were compiled
  std::int64_t loaded = 0;    ///< kernels that came from a cache on disk instead
  bool lost = false;          ///< the process ended, or had to be ended

  [[nodiscard]] double seconds() const { return start + waiting + compile + tune + copy + kernel + passing; }
  [[nodiscard]] bool none() const { return calls == 0 && start == 0.0; }
  Spent& operator+=(const Spent& other);
};

/// By name, what is not 0: start, waiting, compile, tune, copy, kernel, passing, calls, compiled, loaded and lost.
[[nodiscard]] std::map<std::string, double> numbers_of(const Spent& spent);

/// The inverse. Throws Error for a name that is not among those, and for a number that is negative or not finite.
[[nodiscard]] Spent spent_of(const std::map<std::string, double>& numbers);

/// "compile=0.25 compiled=3 start=1.5"; empty where there is nothing to say.
[[nodiscard]] std::string spent_text(const Spent& spent);

/// Reads it back. Throws Error as spent_of does, and for a value that is no number.
[[nodiscard]] Spent parse_spent(std::string_view text);

}  // namespace samestate
