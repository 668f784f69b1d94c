#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "harness/processes/losses.h"
#include "harness/processes/pool.h"
#include "harness/records/timing.h"
#include "harness/records/trace.h"
#include "harness/run/run_case.h"
#include "measure/bench/ceilings.h"
#include "measure/bench/peer.h"

/// Compares kernels by time with their lower bound and with a peer. What is timed is also judged: a wrong
/// kernel gets no time.
namespace samestate {

struct BenchPlan {
  std::vector<std::string> kernels = {};  ///< only these; empty means all on `device`
  std::string system = {};                ///< only this system; empty means all four
  std::string device = {};                ///< cpu or cuda; empty means any
  std::vector<std::string> lines = {};    ///< the user's cases instead of the standard shapes
  bool quick = false;
};

/// Standard shapes for kernels on a device: the heads of Qwen3-Next (Hk 16, Hv 32, d 128), B = 1 with T =
/// 1024, 4096, 8192 and B = 8 with T = 4096 in chunks of 64, decoding one token of B = 1, 8, 64, 256
/// sequences in the recurrent form, and the core of dendritic attention; small shapes on the CPU. The user's
/// own cases run on the kernel that they name, or else on every kernel of the plan that supports them. Throws
/// Error for an unknown kernel or system, a case that does not parse, one that no kernel supports, or one
/// that is not a single call of a kernel of the recurrent family.
[[nodiscard]] std::vector<Case> bench_cases(const KernelTable& table, const BenchPlan& plan);

struct BenchOptions {
  TimingRequest request;
  int threads = 1;                ///< for data and judging, and the limit for a CPU kernel
  std::int64_t judged_heads = 4;  ///< (sequence, head) pairs that the gate's oracle judges; 0 means all
  double timeout = 600.0;    ///< seconds that a case may take, including data and judging; 0 means no limit
  double most_bytes = 16e9;  ///< bytes of tensors on the host; a case that needs more is skipped
  std::function<bool()> stop = {};  ///< once it returns true the running case is ended with a timeout
};

/// A case, timed and judged; `problem` says in one line why a peer that was asked gave no time.
struct BenchResult {
  TimedCase timed;
  std::string problem;
};

/// Times kernels in a worker process (see WorkerProcess for the requirements on the caller): whatever a
/// kernel does there, including a crash or a hang, becomes the verdict of its case. The process is kept from
/// case to case, because creating a device context takes time, and is replaced if it is lost. The cases of a
/// kernel that cost too much are skipped (Losses).
class Bench {
 public:
  /// `table` must outlive it.
  Bench(const KernelTable& table, const BenchOptions& options);

  /// The result of device_ceilings, measured in the worker; nothing is measured if the worker is lost.
  [[nodiscard]] Ceilings ceilings_of_device();

  /// Times the kernel of `c`, then judges what the last timed call wrote, as the gate does. A peer is asked
  /// if the kernel is right, and the kernel is then timed once more, so that a drift of the machine affects
  /// both. Throws Error for an invalid case; whatever the kernel or the peer does becomes a result. `variant`
  /// is one of the kernel's table (Kernel::variants); empty means the one that the kernel chooses.
  [[nodiscard]] BenchResult run(const Case& c, const Ceilings& ceilings, Peer* peer,
                                const std::string& variant = {});

  /// The kernel's trace of the case (Kernel::trace), made in the worker. Throws Error if there is none, for
  /// whatever reason.
  [[nodiscard]] BlockTrace trace(const Case& c, const TraceRequest& request);

 private:
  std::vector<double> first(const Case& c, const std::string& variant, TimedCase& timed);
  std::vector<double> again(const Case& c, Judgement& judgement);

  const KernelTable& table_;
  const BenchOptions options_;
  Pool pool_;
  Losses losses_;
};

/// Throws Error, with the remedy, for a row without traces.
void require_trace(const KernelRow& kernel);

/// The median and the 10th and 90th percentile, interpolated.
[[nodiscard]] TimeSpread time_spread(std::vector<double> seconds);

}  // namespace samestate
