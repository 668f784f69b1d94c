#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "harness/records/spent.h"
#include "oracles/verdict.h"

namespace samestate {

/// Judgement::gate of a case that was skipped because there is no device.
inline constexpr std::string_view kNoDevice = "no device";
/// The gate of a crash before the kernel had launched anything: it may be a call that it does not support.
inline constexpr std::string_view kRefusal = "refusal";
/// The gate of an unsupported case if the kernel refuses a property that all refused cases share and its
/// declaration does not mention.
inline constexpr std::string_view kRefused = "refused";
/// The gate of a case that was skipped because every device was lost: not a fault of the kernel, which ran
/// before.
inline constexpr std::string_view kDevicesLost = "devices lost";
/// The gate of a case whose outputs differ between two devices; the reason says how, before its first colon.
inline constexpr std::string_view kBetweenDevices = "between devices";

/// Record::options of a kernel that belongs to a client of `samestate serve`; no other command can start it.
inline constexpr std::string_view kOfClient = " --subject client";

/// One case on one kernel: one line of the JSON Lines record.
struct Record {
  std::string line;    ///< the canonical case line; `samestate repro '<line>'` repeats it
  std::string kernel;  ///< name in the table of kernels
  std::string system;
  std::string form;
  std::string contract;
  std::string regime;
  std::string law;     ///< empty if it was compared with the oracle
  std::string device;  ///< cpu, cuda or elsewhere
  Judgement judgement;
  double seconds = 0.0;
  std::string options = {};     ///< options that the line needs: " --plugin mine.so", or empty
  std::string looks_like = {};  ///< for a failure that was explained: the fault that it looks like
  /// For a failure that occurs only after other cases: the lines that bring it about when run before it in
  /// one process.
  std::vector<std::string> after = {};
  /// For a case of a cuda kernel that ran: the GPU, by the UUID that `nvidia-smi -L` prints; the run lists
  /// them.
  std::string gpu = {};
  /// For the same: a 64-bit hash of each output that its calls wrote (harness/run/output_hashes.h).
  std::string outputs = {};
  /// The function to which a foreign kernel forwarded its calls (harness/run/forwarded.h); empty if it ran
  /// itself.
  std::string ran_by = {};
  /// How the time of such a case was spent.
  Spent spent = {};
  /// The configurations that the tuners of such a kernel chose in its calls, after the setting that chose
  /// them: "first: scan: BLOCK=128, num_warps=4" (docs/subjects.md); empty if nothing was tuned.
  std::string tuned = {};
  /// A failure is repeated once with the other tuner setting. This gives that setting, the result, and the
  /// configurations of that run: "full: pass: scan: BLOCK=64, num_warps=4".
  std::string retuned = {};
  /// The policy of the judge, by the name of a JudgePolicy (oracles/judge_policy.h); empty in records from
  /// before policies had names, which used the gate's.
  std::string policy = {};
};

}  // namespace samestate
