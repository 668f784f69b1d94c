#pragma once

#include <cstdint>
#include <vector>

#include "harness/run/run_case.h"
#include "measure/bench/bench.h"

namespace samestate {

/// One case in the process that times its kernel; it keeps the tensors for a second set of times.
class BenchRun {
 public:
  /// Throws Error for a kernel that is not in the table.
  BenchRun(const Case& c, const KernelTable& table, const BenchOptions& options);

  /// Times the kernel and judges what the last timed call wrote. Throws what the kernel throws.
  [[nodiscard]] Judgement judge(TimedCase& timed);
  /// Another set of times of the same call.
  [[nodiscard]] Timing once_more();
  /// Of the first set.
  [[nodiscard]] const std::vector<double>& seconds() const { return seconds_; }

 private:
  void require_device() const;
  Judgement judge_heads(TimedCase& timed);
  [[nodiscard]] Judgement judge_head_alone(std::int64_t index) const;

  Resolved r_;
  const KernelTable& table_;
  BenchOptions options_;
  const Kernel& kernel_;
  Batch batch_;
  Outputs outputs_;
  std::vector<double> seconds_;
};

}  // namespace samestate
