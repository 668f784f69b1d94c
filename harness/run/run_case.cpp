#include "harness/run/run_case.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <new>

#include "harness/run/call_variant.h"
#include "harness/run/collect_spent.h"
#include "harness/run/device_fault.h"
#include "harness/run/float_environment.h"
#include "harness/run/forwarded.h"
#include "harness/run/output_hashes.h"
#include "reference/no_value.h"

namespace samestate {
namespace {

Record record_of(const Resolved& r, const KernelRow& kernel) {
  Record record;
  record.line = format_case(r.c);
  record.kernel = kernel.name;
  record.system = r.c.system;
  record.form = r.c.form;
  record.contract = r.c.contract;
  record.regime = r.c.regime;
  record.law = r.c.law;
  record.device = kernel.device;
  record.options = kernel.options;
  return record;
}

/// A kernel declares beforehand which calls it does not take (Kernel::limits). If it refuses a call inside
/// its limits, nothing is computed; a suite that counted this as unsupported would pass a kernel that refuses
/// what it computes wrongly.
Judgement judge_refusal(const Resolved& r, const Refused& refused) {
  const KernelRow& kernel = *refused.kernel;
  const bool no_device = refused.kind == Outcome::Kind::no_device;
  // A law may call the other form's kernel, whose row need not promise the contract.
  const bool promised =
      std::find(kernel.contracts.begin(), kernel.contracts.end(), r.c.contract) != kernel.contracts.end();
  if (!no_device && (!promised || !kernel.limits.hold(as_called(r.c, kernel, refused.call)))) throw refused;
  const std::string why = *refused.what() == '\0' ? "no reason given" : refused.what();
  Judgement j;
  if (no_device && kernel.device != "cpu") {
    j.verdict = Verdict::skipped;
    j.gate = kNoDevice;
    j.reason = why;
    return j;
  }
  j.verdict = Verdict::fail;
  j.gate = "limits";
  j.ratio = std::numeric_limits<double>::infinity();
  j.reason =
      no_device
          ? fmt::format("refused: {}; {} is a kernel of the processor, which is there", why, kernel.name)
          : fmt::format(
                "refused inside its limits: {}; the row of {} declares {}: take the call, or name "
                "the limit there (Kernel::limits)",
                why, kernel.name, kernel.limits.text());
  return j;
}

}  // namespace

int threads_of(const Case& c) { return 1 + static_cast<int>(c.seed % 3); }

void set_judgement(Record& record, const std::function<Judgement()>& judge) {
  const auto started = std::chrono::steady_clock::now();
  if (record.device == "cuda") {
    if (const std::string fault = device_fault(); !fault.empty()) {
      record.judgement.verdict = Verdict::skipped;
      record.judgement.gate = "device";
      record.judgement.reason = fault + ": an earlier case of this process broke its device context";
      return;
    }
  }
  try {
    record.judgement = judge();
  } catch (const Unavailable& unavailable) {
    record.judgement.verdict =
        unavailable.kind == Outcome::Kind::no_device ? Verdict::skipped : Verdict::unsupported;
    record.judgement.reason = unavailable.what();
  } catch (const ChangedEnvironment& changed) {
    record.judgement.verdict = Verdict::fail;
    record.judgement.gate = "environment";
    record.judgement.ratio = std::numeric_limits<double>::infinity();
    record.judgement.reason = changed.what();
  } catch (const Trespass& trespass) {
    record.judgement.verdict = Verdict::fail;
    record.judgement.gate = "memory";
    record.judgement.ratio = std::numeric_limits<double>::infinity();
    record.judgement.reason = trespass.what();
  } catch (const Unrepeatable& unrepeatable) {
    record.judgement.verdict = Verdict::fail;
    record.judgement.gate = "repeat";
    record.judgement.ratio = std::numeric_limits<double>::infinity();
    record.judgement.reason = unrepeatable.what();
  } catch (const NoValue& none) {
    record.judgement.verdict = Verdict::vacuous;
    record.judgement.gate = "reference";
    record.judgement.reason = fmt::format("the reference has no value to judge by: {}", none.what());
  } catch (const ThrewElsewhere& thrown) {
    record.judgement.verdict = Verdict::crash;
    record.judgement.gate = thrown.refusal ? kRefusal : "exception";
    record.judgement.reason = std::string("the kernel threw: ") + thrown.what();
  } catch (const KernelThrew& thrown) {
    record.judgement.verdict = Verdict::crash;
    record.judgement.gate = "exception";
    record.judgement.reason = thrown.what();
  } catch (const std::bad_alloc&) {
    record.judgement.verdict = Verdict::crash;
    record.judgement.gate = "judge";
    record.judgement.reason =
        "the judge ran out of memory: raise ulimit -v and what else limits a process, or use fewer --threads";
  } catch (const std::exception& thrown) {
    record.judgement.verdict = Verdict::crash;
    record.judgement.gate = "judge";
    record.judgement.reason = fmt::format(
        "the judge threw: {}; that is a fault of samestate, not of the kernel: please report the line",
        thrown.what());
  }
  // A kernel that does not look at its own errors returns as if nothing had happened.
  if (record.device == "cuda" && record.judgement.verdict != Verdict::crash) {
    if (const std::string fault = device_fault(); !fault.empty()) {
      record.judgement = {};
      record.judgement.verdict = Verdict::crash;
      record.judgement.gate = "device";
      record.judgement.reason = fault + ": the kernel broke its device context, and every later call fails";
    }
  }
  record.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
}

Record planned_record(const Case& c, const KernelTable& table) {
  const Resolved r(c);
  Record record = record_of(r, *table.choose(r).named);
  record.policy = kGatePolicy.name;
  return record;
}

RunOptions run_options(const Resolved& r, int threads) {
  RunOptions options;
  options.layout = r.layout;
  options.threads = std::max(threads, threads_of(r.c));
  options.final_state = r.final_state;
  options.lead = r.c.lead;
  options.slack = r.c.slack;
  options.repeat = r.c.repeat;
  options.of = &r.c;
  return options;
}

Record run_resolved(const Resolved& r, const KernelChoice& kernels, int threads, Trace* trace,
                    const JudgePolicy& policy) {
  Record record = record_of(r, *kernels.named);
  record.policy = policy.name;
  RunOptions options = run_options(r, threads);
  options.deterministic = kernels.named->deterministic;
  const CallVariant variant(kernels, r.c);
  OutputHashes hashes;
  Forwarded forwarded;
  const CollectSpent spent;
  set_judgement(record, [&] {
    try {
      return r.system->run(r, kernels, options, policy, trace);
    } catch (const Refused& refused) {
      return judge_refusal(r, refused);
    }
  });
  // Devices are compared by these hashes, of which such a kernel has others in every run.
  if (options.deterministic) record.outputs = hashes.text();
  record.ran_by = forwarded.text();
  record.spent = spent.spent();
  record.tuned = spent.tuned();
  return record;
}

Record run_case(const Case& c, const KernelTable& table, int threads, Trace* trace,
                const JudgePolicy& policy) {
  const Resolved r(c);
  return run_resolved(r, table.choose(r), threads, trace, policy);
}

}  // namespace samestate
