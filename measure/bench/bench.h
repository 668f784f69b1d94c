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

/// Kernels against the clock, their floor and a peer. What is timed is also judged: a wrong kernel has no
/// time.
namespace samestate {

struct BenchPlan {
  std::vector<std::string> kernels = {};  ///< only these; empty: all of `device`
  std::string system = {};                ///< only this one; empty: all four
  std::string device = {};                ///< cpu or cuda; empty: any
  std::vector<std::string> lines = {};    ///< own cases instead of the standard shapes
  bool quick = false;
};

/// Standard shapes for kernels on a device: the heads of Qwen3-Next (Hk 16, Hv 32, d 128), B = 1 with T =
/// 1024, 4096, 8192 and B = 8 with T = 4096 in chunks of 64, decoding one token of B = 1, 8, 64, 256
/// sequences in the recurrent form, and the core of dendritic attention; on the CPU small ones. Own cases run
/// on the kernel that they name, else on every kernel of the plan that fits them. Throws Error for a kernel
/// or system that is not there, a case that does not parse, one that fits none of these, or one that is no single call of a kernel of the
/// recurrent family.
[[nodiscard]] std::vector<Case> bench_cases(const KernelTable& table, const BenchPlan& plan);

struct BenchOptions {
  TimingRequest request;
  int threads = 1;                  ///< for data and judging, and what a CPU kernel may use
  std::int64_t judged_heads = 4;    ///< (sequence, head) pairs that the gate's oracle sees; 0: all
  double timeout = 600.0;           ///< seconds that a case may take, data and judging with it; 0: no limit
  double most_bytes = 16e9;         ///< of tensors on the host; a case that needs more is skipped
  std::function<bool()> stop = {};  ///< once true the case that runs is ended, a timeout
};

/// A case, timed and judged; `problem` says on one line why a peer that was asked gave no time.
struct BenchResult {
  TimedCase timed;
  std::string problem;
};

/// Times kernels in a worker process (see WorkerProcess for what that asks of the caller): whatever a kernel
/// does there, a crash or a hang too, is the verdict of its case. The process is kept from case to case, for a
/// device's context takes time, and replaced where it is lost. The cases of a kernel that cost too much are
/// skipped (Losses).
class Bench {
 public:
  /// `table` outlives it.
  Bench(const KernelTable& table, const BenchOptions& options);

  /// device_ceilings, measured in the worker; nothing measured where that is lost.
  [[nodiscard]] Ceilings ceilings_of_device();

  /// Times the kernel of `c`, then judges what the last timed call wrote as the gate does. With a peer, which
  /// is asked where the kernel is right, the kernel is timed once more after it, so that a drift of the
  /// machine meets both. Throws Error for a case that is no case; whatever the kernel or the peer does is a
  /// result.
  /// `variant`: of the kernel's table (Kernel::variants); empty: the one that the kernel chooses.
  [[nodiscard]] BenchResult run(const Case& c, const Ceilings& ceilings, Peer* peer,
                                const std::string& variant = {});

  /// The kernel's trace of the case (Kernel::trace), in the worker. Throws Error for whatever gives none.
  [[nodiscard]] BlockTrace trace(const Case& c, const TraceRequest& request);

 private:
  std::vector<double> first(const Case& c, const std::string& variant, TimedCase& timed);
  std::vector<double> again(const Case& c, Judgement& judgement);

  const KernelTable& table_;
  const BenchOptions options_;
  Pool pool_;
  Losses losses_;
};

/// Throws Error, with the remedy, for a row that has no trace.
void require_trace(const KernelRow& kernel);

/// Median and the 10th and 90th of a hundred, interpolated.
[[nodiscard]] TimeSpread time_spread(std::vector<double> seconds);

}  // namespace samestate
