#pragma once

#include <functional>
#include <string>
#include <vector>

#include "harness/cases/resolved.h"
#include "harness/records/record.h"
#include "harness/run/kernel_table.h"
#include "harness/run/law_trace.h"
#include "oracles/given.h"
#include "oracles/judge_policy.h"
#include "oracles/systems/judge_operator.h"

namespace samestate {

/// The data of a run, for repro and --dump.
struct Trace {
  std::vector<CaseTensor> inputs, outputs;  ///< outputs is empty if the kernel returned nothing
  std::string native;                       ///< the form of the kernel that ran
  std::vector<OperatorOracle> oracles;      ///< for named tensors, by sequence: results and tolerances
  LawTrace law;                             ///< for a case with a law
  TensorLawTrace tensor_law;                ///< the same for a system of named tensors
  Given given = {};                         ///< for the recurrent family: how the kernel received `inputs`
};

/// Returns the part of a case's record that is known before it runs: everything except judgement and seconds.
/// Throws Error for an invalid case.
[[nodiscard]] Record planned_record(const Case& c, const KernelTable& table);

/// Sets the judgement of `record` to the result of `judge`, or to the verdict of its exception: unsupported,
/// skipped, fail (Trespass) or crash; sets `seconds` to its duration. A kernel that breaks its device context
/// has crashed, with gate device, and later cases of the process are skipped with the same gate, because
/// nothing can be judged there.
void set_judgement(Record& record, const std::function<Judgement()>& judge);

/// How a case is run according to its line. `threads` is used if it is more than the seed gives.
[[nodiscard]] RunOptions run_options(const Resolved& r, int threads = 1);

/// Runs a resolved case on kernels that were chosen for it, and returns the record of run_case.
[[nodiscard]] Record run_resolved(const Resolved& r, const KernelChoice& kernels, int threads = 1,
                                  Trace* trace = nullptr, const JudgePolicy& policy = kGatePolicy);

/// The threads that a kernel may use: one, two or three, depending on the seed, so that a plan contains each
/// and a line repeats its own.
[[nodiscard]] int threads_of(const Case& c);

/// Runs one case on its kernel and judges it in the order of DESIGN 5: exact regimes bit for bit; otherwise
/// the oracle's gates, then the twin for low-precision contracts, then segment by segment if the bound of the
/// whole run is vacuous (BOUNDS 10.1); with law=, the law instead. Throws Error for an invalid case; whatever
/// the kernel does becomes a verdict. `policy` says how far the judge looks, and is named in the record: with
/// the gate's policy, which is the default, a line has the same verdict, gate and ratio from every verb, with
/// or without a trace.
[[nodiscard]] Record run_case(const Case& c, const KernelTable& table, int threads = 1,
                              Trace* trace = nullptr, const JudgePolicy& policy = kGatePolicy);

}  // namespace samestate
