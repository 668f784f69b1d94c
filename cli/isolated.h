#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "oracles/verdict.h"

namespace samestate::cli {

/// Runs `body` in a child process and returns the exit code that it gives. Where the child is killed by a
/// signal, exits before `body` has ended, or `overdue` says what takes too long, `lost` is called here
/// instead, with crash or timeout and the reason. `overdue` is asked every 20 ms or more often, with the
/// seconds since the child began; empty: nothing does. An Error of `body` is printed by the child: 2.
[[nodiscard]] int run_isolated(const std::function<int()>& body,
                               const std::function<std::string(double seconds)>& overdue,
                               const std::function<int(Verdict, const std::string&)>& lost);

/// What `overdue` says of a case; empty within the limit of `timeout` seconds (0: none).
[[nodiscard]] std::string no_answer(double seconds, double timeout);

/// Lines that the child of run_isolated writes and its parent still reads when it is gone.
class ChildLines {
 public:
  ChildLines();
  ~ChildLines();
  ChildLines(const ChildLines&) = delete;
  ChildLines& operator=(const ChildLines&) = delete;

  /// For one thread at a time.
  void add(const std::string& line);
  /// The whole ones.
  [[nodiscard]] std::vector<std::string> lines() const;

 private:
  int file_ = -1;
};

/// Numbers that the child of run_isolated notes and that its parent still reads when it is gone: the cases
/// that were under way. For one thread at a time.
class UnderWay {
 public:
  /// Room for `most` at a time.
  explicit UnderWay(std::size_t most);
  ~UnderWay();
  UnderWay(const UnderWay&) = delete;
  UnderWay& operator=(const UnderWay&) = delete;

  void begin(std::int64_t number);
  void end(std::int64_t number);
  /// Those that began and did not end, at least `seconds` ago.
  [[nodiscard]] std::vector<std::int64_t> left(double seconds = 0.0) const;

 private:
  struct Slot {
    std::int64_t number, began;  ///< nanoseconds of the steady clock, which parent and child share
  };
  void replace(std::int64_t from, std::int64_t to);
  volatile Slot* slots_;
  std::size_t most_;
};

}  // namespace samestate::cli
