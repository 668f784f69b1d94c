#include "harness/run/run_case.h"

#include <algorithm>
#include <chrono>
#include <limits>

#include "harness/run/device_fault.h"

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

/// Threads that a kernel may use: one, two or three, by the seed, so that a plan has each and a line repeats its own.
int threads_of(const Case& c) { return 1 + static_cast<int>(c.seed % 3); }

}  // namespace

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
  } catch (const Trespass& trespass) {
    record.judgement.verdict = Verdict::fail;
    record.judgement.gate = "memory";
    record.judgement.ratio = std::numeric_limits<double>::infinity();
    record.judgement.reason = trespass.what();
  } catch (const std::exception& thrown) {
    record.judgement.verdict = Verdict::crash;
    record.judgement.gate = "exception";
    record.judgement.reason = std::string("the kernel threw: ") + thrown.what();
  } catch (...) {
    record.judgement.verdict = Verdict::crash;
    record.judgement.gate = "exception";
    record.judgement.reason = "the kernel threw something that is no std::exception";
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
  return record_of(r, *table.choose(r).named);
}

Record run_resolved(const Resolved& r, const KernelChoice& kernels, int threads, Trace* trace) {
  Record record = record_of(r, *kernels.named);
  threads = std::max(threads, threads_of(r.c));
  set_judgement(record, [&] { return r.system->run(r, kernels, {r.layout, threads}, trace); });
  return record;
}

Record run_case(const Case& c, const KernelTable& table, int threads, Trace* trace) {
  const Resolved r(c);
  return run_resolved(r, table.choose(r), threads, trace);
}

}  // namespace samestate
