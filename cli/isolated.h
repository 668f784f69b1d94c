#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "oracles/verdict.h"

namespace samestate::cli {

/// Runs `body` in a child process and returns the exit code that it gives. Where the child is killed by a
/// signal, exits before `body` has ended, or takes longer than `timeout` seconds (0: no
/// limit), `lost` is called here instead, with crash or timeout and the reason. An Error of `body` is printed
/// by the child: 2.
[[nodiscard]] int run_isolated(const std::function<int()>& body, double timeout,
                               const std::function<int(Verdict, const std::string&)>& lost);

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
  [[nodiscard]] std::vector<std::int64_t> left() const;

 private:
  void replace(std::int64_t from, std::int64_t to);
  volatile std::int64_t* numbers_;
  std::size_t most_;
};

}  // namespace samestate::cli
