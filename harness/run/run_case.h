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

/// What a case left behind, for repro and --dump.
struct Trace {
  std::vector<CaseTensor> inputs, outputs;  ///< outputs: empty where the kernel returned nothing
  std::string native;                       ///< form of the kernel that ran
  std::vector<OperatorOracle> oracles;      ///< by sequence, of named tensors: what they were held against
  LawTrace law;                             ///< of a case with a law
  TensorLawTrace tensor_law;                ///< the same, of a system of named tensors
  Given given = {};                         ///< of the recurrent family: how the kernel got `inputs`
};

/// What is known of a case's record before it runs: all but judgement and seconds. Throws Error for a case
/// that is no case.
[[nodiscard]] Record planned_record(const Case& c, const KernelTable& table);

/// Sets the judgement of `record` to what `judge` returns, or to the verdict of what it throws: unsupported,
/// skipped, fail (Trespass) or crash; `seconds` to how long it took. A kernel that breaks its device context
/// crashed, gate device, and later cases of the process are skipped, of the same gate: nothing can be judged
/// there.
void set_judgement(Record& record, const std::function<Judgement()>& judge);

/// How the line of a case has it run. `threads`: more than the seed's, where they are.
[[nodiscard]] RunOptions run_options(const Resolved& r, int threads = 1);

/// Runs a resolved case on kernels chosen for it: the record of run_case.
[[nodiscard]] Record run_resolved(const Resolved& r, const KernelChoice& kernels, int threads = 1,
                                  Trace* trace = nullptr, const JudgePolicy& policy = kGatePolicy);

/// Threads that a kernel may use: one, two or three, by the seed, so that a plan has each and a line repeats its own.
[[nodiscard]] int threads_of(const Case& c);

/// Runs one case on its kernel and judges it in the order of DESIGN 5: exact regimes bit for bit; else oracle
/// gates, then the twin for low-precision contracts, then segment by segment where the bound of the whole run
/// is vacuous (BOUNDS 10.1); with law=, the law instead. Throws Error for a case that is no case; whatever
/// the kernel does becomes a verdict. `policy` says how far the judge looks, and is named in the record: with the gate's, which
/// is the default, a line has the same verdict, gate and ratio from every verb, whether or not a trace is kept.
[[nodiscard]] Record run_case(const Case& c, const KernelTable& table, int threads = 1,
                              Trace* trace = nullptr, const JudgePolicy& policy = kGatePolicy);

}  // namespace samestate
