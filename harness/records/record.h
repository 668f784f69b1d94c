#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "harness/records/spent.h"
#include "oracles/verdict.h"

namespace samestate {

/// Judgement::gate of a case that was skipped for want of a device.
inline constexpr std::string_view kNoDevice = "no device";
/// The gate of a crash that came before the kernel had launched anything: it may be a call that it does not take.
inline constexpr std::string_view kRefusal = "refusal";
/// The gate of an unsupported case whose kernel refuses what all refused cases share and its declaration does not name.
inline constexpr std::string_view kRefused = "refused";
/// Of one that was skipped since every device was lost: no fault of the kernel, which ran before.
inline constexpr std::string_view kDevicesLost = "devices lost";
/// Of a case whose outputs differ between two devices; the reason says how before its first colon.
inline constexpr std::string_view kBetweenDevices = "between devices";

/// Record::options of a kernel of a client of `samestate serve`, which no other command can start.
inline constexpr std::string_view kOfClient = " --subject client";

/// One case on one kernel: a line of the JSON Lines record.
struct Record {
  std::string line;    ///< the canonical case line; `samestate repro '<line>'` repeats it
  std::string kernel;  ///< name in the table of kernels
  std::string system;
  std::string form;
  std::string contract;
  std::string regime;
  std::string law;     ///< empty: against the oracle
  std::string device;  ///< cpu, cuda or elsewhere
  Judgement judgement;
  double seconds = 0.0;
  std::string options = {};     ///< of the command that the line needs: " --plugin mine.so", else empty
  std::string looks_like = {};  ///< of a failure that was explained: the fault that it looks like
  /// Of a failure that comes after others alone: the lines that bring it, run before it in one process.
  std::vector<std::string> after = {};
  /// Of a case of a cuda kernel that ran: the GPU, by the UUID that `nvidia-smi -L` prints; the run lists them.
  std::string gpu = {};
  /// Of the same: what its calls wrote, a 64-bit hash an output (harness/run/output_hashes.h).
  std::string outputs = {};
  /// What a kernel of somebody else's handed its calls on to (harness/run/forwarded.h); empty: it ran itself.
  std::string ran_by = {};
  /// Shows where the seconds of such a case went.
  Spent spent = {};
  /// The configurations that the tuners of such a kernel chose in its calls, behind the setting that chose them:
  /// "first: scan: BLOCK=128, num_warps=4" (docs/lookup/subjects.md); empty: its calls tuned nothing.
  std::string tuned = {};
  /// A failure is repeated once with the other setting of its tuners. This says with which one, what came, and the
  /// configurations of that run: "full: pass: scan: BLOCK=64, num_warps=4".
  std::string retuned = {};
  /// The policy under which the judge looked, by the name of a JudgePolicy (oracles/judge_policy.h); empty: a record of before
  /// there were names, which is the gate's.
  std::string policy = {};
};

}  // namespace samestate
