#pragma once

#include <memory>
#include <vector>

#include "harness/run/run_case.h"
#include "harness/run/whole_call.h"
#include "measure/bench/bench.h"

namespace samestate {

/// `count` of the parts [0, all) that are judged separately, in order; all of them if count is 0. The first
/// and the last, then both sides of block edges (128, 64, 32, 16, 8), at which kernels divide their grids;
/// the rest are evenly spread.
[[nodiscard]] std::vector<std::int64_t> parts_to_judge(std::int64_t all, std::int64_t count);

/// One case in the process that times its kernel; it keeps the tensors for a second set of times.
class BenchRun {
 public:
  /// Throws Error for an unknown kernel.
  BenchRun(const Case& c, const KernelTable& table, const BenchOptions& options);

  /// Times the kernel and judges what the last timed call wrote. Throws what the kernel throws, and Error for
  /// a case that makes several calls.
  [[nodiscard]] Judgement judge(TimedCase& timed);
  /// Another set of times of the same call.
  [[nodiscard]] Timing once_more();
  /// Traces what the warps of one block of a call wait for. Throws Error for a kernel without traces.
  [[nodiscard]] KernelTrace trace(const TraceRequest& request);
  /// The times of the first set.
  [[nodiscard]] const std::vector<double>& seconds() const { return seconds_; }

 private:
  void require_device() const;
  [[nodiscard]] Judgement judge_parts(TimedCase& timed) const;

  Resolved r_;
  BenchOptions options_;
  KernelChoice kernels_;
  std::unique_ptr<WholeCall> whole_;
  std::vector<double> seconds_;
};

}  // namespace samestate
