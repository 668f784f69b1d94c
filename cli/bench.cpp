#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <memory>
#include <optional>
#include <span>
#include <thread>

#include "cli/commands.h"
#include "cli/devices.h"
#include "cli/duration.h"
#include "cli/filter.h"
#include "cli/interrupt.h"
#include "cli/options.h"
#include "cli/progress.h"
#include "cli/subject_log.h"
#include "cli/table.h"
#include "cli/terminal.h"
#include "fuzz/plan/filtered.h"
#include "fuzz/plan/plan.h"
#include "measure/bench/bench.h"
#include "optimized/cuda/cuda_operator_kernels.h"
#include "reference/error.h"
#include "reports/records/files.h"
#include "reports/records/json_lines.h"
#include "reports/records/summary.h"
#include "reports/text/bench.h"
#include "reports/text/trace.h"

namespace samestate::cli {
namespace {

struct BenchCommand {
  BenchPlan plan;
  FilterOptions filter;
  bool list = false;
  BenchOptions bench;
  std::vector<std::string> plugins;
  std::string jsonl, peer, trace, timeout = "10m", commit, products = "library", devices;
  std::int64_t block = -1;
  double peer_timeout = 120.0;
  double gigabytes = 16.0;
  bool json = false;
  bool sweep = false;
};

/// Bad cases are listed with the command that repeats them, worst exit code first.
int exit_code(const std::vector<TimedCase>& all) {
  const auto count = [&](Verdict verdict) {
    return std::count_if(all.begin(), all.end(),
                         [&](const TimedCase& t) { return t.record.judgement.verdict == verdict; });
  };
  if (count(Verdict::crash) + count(Verdict::timeout) > 0) return kCrash;
  if (count(Verdict::fail) > 0) return kFail;
  if (count(Verdict::pass) + count(Verdict::vacuous) == 0) return kNothingRan;
  return count(Verdict::vacuous) > 0 ? kVacuous : kPass;
}

/// A case and the variant of its kernel; empty for the variant that the kernel chooses.
struct Entry {
  Case c;
  std::string variant;
};

/// Returns each case once; in a sweep once for every variant of its kernel.
std::vector<Entry> entries_of(const std::vector<Case>& cases, const KernelTable& table, bool sweep) {
  std::vector<Entry> entries;
  for (const Case& c : cases) {
    const KernelRow& kernel = *table.choose(Resolved(c)).named;
    if (!sweep || kernel.variants.empty()) entries.push_back({c, ""});
    if (!sweep) continue;
    for (const Variant& variant : kernel.variants) entries.push_back({c, variant.name});
  }
  return entries;
}

/// The picture shows this much of the block: a few chunks that can be told apart.
constexpr double kPictured = 12e-6;

void write_trace(const BlockTrace& trace, const std::string& path) {
  const double length = *std::max_element(trace.ends.begin(), trace.ends.end());
  const double begin = std::max(0.0, length / 2.0 - kPictured / 2.0);
  write_atomically(path, path.ends_with(".svg") ? trace_svg(trace, begin, std::min(length, begin + kPictured))
                                                : trace_events(trace));
}

/// Expands the patterns of --kernel. Throws Error if they contradict --system or --device.
void name_kernels(BenchPlan& plan, const KernelTable& table) {
  if (plan.kernels.empty()) return;
  std::vector<std::string> names;
  for (const KernelRow* row :
       wanted_kernels(table, plan.system, plan.device, fmt::format("{}", fmt::join(plan.kernels, ","))))
    names.push_back(row->name);
  plan.kernels = std::move(names);
}

DeviceRates rates_of(const std::string& device, const Ceilings& measured) {
  return {device, measured.copy, measured.bf16, measured.fp32, measured.note};
}

Run run_of(const Accelerator& device, const BenchCommand& options, const Devices* devices) {
  Run run = this_run(device, options.plugins, options.commit);
  run.gpus = texts_of(devices);
  return run;
}

/// The timed calls and their results.
struct TimedRun {
  const BenchCommand& options;
  const KernelTable& table;
  std::vector<Entry> entries;
  JsonLinesWriter* lines;
  const Devices* devices;
  Progress* progress = nullptr;
  std::vector<TimedCase> all = {};
  std::optional<Ceilings> host = {};
  std::vector<DeviceRates> rates = {};  ///< rates of the devices
  std::optional<BlockTrace> trace = {};
  std::string no_trace = {};  ///< why a requested trace is missing; printed after the times
  bool host_done = false;     ///< kernels of the processor are timed only once

  /// Times all entries in a process that sees what this one does; `device` is set if --devices names one.
  void on_device(const std::string& name, const HostDevice* device) {
    Bench bench(table, options.bench);
    std::unique_ptr<Peer> peer;
    if (!options.peer.empty()) peer = std::make_unique<Peer>(options.peer, options.peer_timeout);
    std::optional<Ceilings> accelerated;
    std::vector<TimedCase> here;
    for (const auto& [c, variant] : entries) {
      if (interrupted()) break;
      const bool on_host = table.choose(Resolved(c)).named->device == "cpu";
      if (on_host && host_done) continue;
      if (on_host) host = host_ceilings(bytes_of_call(Resolved(c), false), options.bench.threads);
      if (!on_host && !accelerated) accelerated = bench.ceilings_of_device();
      BenchResult result = bench.run(c, on_host ? *host : *accelerated, peer.get(), variant);
      Record& record = result.timed.record;
      // The running call was interrupted, which says nothing about its kernel.
      if (interrupted() && record.judgement.verdict == Verdict::timeout) break;
      if (!variant.empty() && record.judgement.verdict == Verdict::unsupported) continue;
      record.device = on_host ? "cpu" : name;
      if (!on_host && device != nullptr) {
        record.gpu = device->id;
        record.options += device_options(record, devices);
      }
      if (lines != nullptr) lines->timing(result.timed);
      progress->step(record.judgement.ratio, is_failure(record.judgement.verdict));
      if (!result.problem.empty()) {
        progress->clear();
        fmt::print(stderr, "samestate: no peer for {}: {}\n", record.line, result.problem);
      }
      here.push_back(std::move(result.timed));
    }
    host_done = true;
    if (accelerated) {
      rates.push_back(rates_of(name, *accelerated));
      if (device != nullptr)
        rates.back().number = std::to_string(device->ordinal), rates.back().gpu = device->id;
    }
    const int code = exit_code(here);
    if (!options.trace.empty() && !interrupted() && code != kNothingRan && code != kCrash) {
      try {
        trace = bench.trace(entries.front().c, {options.block, entries.front().variant});
      } catch (const Error& error) {
        no_trace = error.what();
      }
    }
    all.insert(all.end(), std::make_move_iterator(here.begin()), std::make_move_iterator(here.end()));
  }
};

int run_bench(BenchCommand options) {
#ifdef SAMESTATE_HAVE_CUDA
  cuda::use_product_library(options.products != "own");
#endif
  if (options.trace.empty() && options.block != -1)
    throw Error("--block says which block --trace shows; add --trace FILE");
  if (!options.trace.empty() && !options.trace.ends_with(".json") && !options.trace.ends_with(".svg")) {
    throw Error("--trace " + options.trace +
                ": the name must end in .json (events for Perfetto or chrome://tracing) or .svg (a picture)");
  }
  const SubjectLog log(options.plugins);
  const KernelTable table = kernel_table(options.plugins, filter_of(options.filter));
  std::unique_ptr<Devices> devices;
  if (!options.devices.empty()) devices = devices_of(options.devices, table);
  Accelerator device = accelerator();
  if (device.name.empty() && devices) device.name = devices->all().front().name;
  // A user who brings a kernel asks about that kernel; --kernel '*' also times the others.
  if (options.plan.kernels.empty()) {
    for (const KernelRow& row : table.added()) options.plan.kernels.push_back(row.name);
  }
  name_kernels(options.plan, table);
  if (options.plan.device.empty()) options.plan.device = device.name.empty() ? "cpu" : "cuda";
  const CaseFilter filter = filter_of(options.filter);
  std::vector<Case> cases = bench_cases(table, options.plan);
  if (!cases.empty()) {
    keep_taken(cases, table, filter);
    if (cases.empty())
      throw Error("no case fits " + filter.text() +
                  ": `samestate bench --list` with fewer conditions shows them");
  }
  if (options.list) {
    std::vector<std::string> texts;
    for (const Case& c : cases) texts.push_back(format_case(c));
    fmt::print("{}", listed(texts, options.json));
    return kPass;
  }
  if (cases.empty()) {
    fmt::print(stderr, "samestate: no kernel of this build fits; `samestate list kernels` shows them\n");
    return kNothingRan;
  }
  if (options.plan.device == "cuda" && device.name.empty()) {
    fmt::print(
        stderr,
        "samestate: no CUDA device: none of {} was timed; run it where `nvidia-smi` shows one, or time the "
        "CPU's kernels with --device cpu\n",
        counted(std::ssize(cases), "case"));
    return kNothingRan;
  }
  if (!options.trace.empty()) {
    if (cases.size() != 1) {
      throw Error(fmt::format(
          "--trace shows one case, but {} fit; name it with --case, --kernel, --system or --filter",
          cases.size()));
    }
    if (devices && devices->all().size() > 1)
      throw Error("--trace shows one device; name it, for example --devices 0");
    require_trace(*table.choose(Resolved(cases.front())).named);
    require_writable(options.trace);
  }
  options.bench.most_bytes = options.gigabytes * 1e9;
  options.bench.stop = interrupted;
  options.bench.timeout = seconds_of("--timeout", options.timeout);
  std::unique_ptr<JsonLinesWriter> lines;
  if (!options.jsonl.empty()) {
    lines = std::make_unique<JsonLinesWriter>(options.jsonl, run_of(device, options, devices.get()),
                                              JsonLinesWriter::Mode::append);
  }
  TimedRun run{options, table, entries_of(cases, table, options.sweep), lines.get(), devices.get()};
  note_interrupts();
  const std::span<const HostDevice> named = devices ? devices->all() : std::span<const HostDevice>();
  const auto host_entries = std::ranges::count_if(
      run.entries, [&](const Entry& e) { return table.choose(Resolved(e.c)).named->device == "cpu"; });
  const std::int64_t on_devices = std::ssize(run.entries) - host_entries;
  const std::int64_t total = host_entries + on_devices * std::max<std::int64_t>(1, std::ssize(named));
  Progress progress(total);
  run.progress = &progress;
  // Devices are timed one after another: runs on two at a time would share the host's memory and power.
  if (named.empty()) run.on_device(device.name.empty() ? "cuda" : device.name, nullptr);
  for (const HostDevice& one : named) {
    if (named.size() > 1) ::setenv("CUDA_VISIBLE_DEVICES", one.visible.c_str(), 1);
    run.on_device(one.name, &one);
  }
  progress.clear();
  const std::vector<TimedCase>& all = run.all;
  if (run.host) run.rates.insert(run.rates.begin(), rates_of("cpu", *run.host));
  fmt::print("{}", options.json ? bench_json(all) : bench_text(all, run.rates, columns_of_tables()));
  if (!run.no_trace.empty()) throw Error(run.no_trace);
  if (run.trace) {
    write_trace(*run.trace, options.trace);
    if (!options.json) fmt::print("\n{}", trace_text(*run.trace, columns_of_tables()));
    fmt::print(stderr, "samestate: wrote {}\n", options.trace);
  }
  if (interrupted()) {
    fmt::print(stderr, "samestate: interrupted after {} of {} cases\n", all.size(), total);
    const int code = exit_code(all);
    return code == kPass || code == kNothingRan ? static_cast<int>(kVacuous) : code;
  }
  return exit_code(all);
}

}  // namespace

Command add_bench(CLI::App& app) {
  auto options = std::make_shared<BenchCommand>();
  options->bench.threads = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  app.footer(
      "Times each kernel, and judges what the last timed call wrote: a wrong kernel gets no time, "
      "and the exit code is 1.\n"
      "The lower bound on the time is the bytes that every evaluation must move divided by the "
      "rate of a copy, or the\n"
      "operations of the form divided by the rate of a large matrix product, both measured in the "
      "same run; docs/do/bench.md\n"
      "explains how, and what a peer must answer.\n"
      "\n"
      "  samestate bench --quick\n"
      "  samestate bench --kernel cuda.gated_delta_rule.chunked --jsonl out/bench.jsonl\n"
      "  samestate bench --case 'v1 retention B=4 T=2048 Hk=8 dk=128 contract=bf16'\n"
      "  samestate bench --case 'v1 rms_norm form=fused T=1024 D=2048'\n"
      "  samestate bench --case 'v1 softmax_attention form=decode prefill=4096 T=4097'    one "
      "token over a cache\n"
      "  samestate bench --case 'v1 gated_delta_rule T=8192 Hk=16 Hv=32 dk=128 "
      "contract=bf16_fused' --trace trace.svg\n"
      "  samestate bench --plugin ./mine.so --kernel mine.gated_delta_rule.chunked\n"
      "  samestate bench --kernel cuda.gated_delta_rule.chunked --devices 0,1       one device "
      "after the other\n"
      "  samestate bench --peer 'python3 examples/peers/fla_bench.py'\n"
      "\n" +
      filter_help());
  add_repeatable(app, "--kernel", options->plan.kernels, kKernelHelp);
  app.add_option("--system", options->plan.system, "only this system");
  app.add_option("--device", options->plan.device,
                 "only kernels of this device: cpu or cuda (default: cuda if there is a device)");
  app.add_option("--devices", options->devices,
                 "GPUs on which cuda kernels are timed, one after the other, for example 0,2: numbers among "
                 "those that CUDA_VISIBLE_DEVICES shows (default: the first)")
      ->check(named());
  add_repeatable(app, "--case", options->plan.lines,
                 "time this case instead of the standard shapes (repeatable)");
  add_plugin_option(app, options->plugins);
  add_filter_options(app, options->filter);
  app.add_flag("--list", options->list, "print the case lines without timing them");
  app.add_flag("--sweep", options->sweep,
               "time each case with every variant of its kernel that supports it (list kernels --long)");
  app.add_flag("--quick", options->plan.quick, "time the smaller set of shapes");
  app.add_option("--seconds", options->bench.request.seconds, "seconds spent in timed calls for each case")
      ->capture_default_str()
      ->check(number_in(1e-3, 3600.0));
  app.add_option("--judge-heads", options->bench.judged_heads,
                 "number of heads of a case that the oracle judges, spread over all (0: all); for named "
                 "tensors, the number of sequences")
      ->capture_default_str()
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1} << 40));
  app.add_option("--threads", options->bench.threads, "threads for data and judging, and for a CPU kernel")
      ->capture_default_str()
      ->check(CLI::Range(1, 1024));
  app.add_option("--max-memory", options->gigabytes, "GB of tensors in memory; a larger case is skipped")
      ->capture_default_str()
      ->check(number_in(1e-3, 1e6));
  app.add_option("--timeout", options->timeout, "a case that takes longer is a timeout (0: no limit)")
      ->capture_default_str();
  add_commit_option(app, options->commit);
  app.add_option("--peer", options->peer,
                 "a command that times other kernels for comparison (docs/do/bench.md)");
  app.add_option("--peer-timeout", options->peer_timeout, "seconds that the peer may take for a case")
      ->capture_default_str()
      ->check(number_in(1e-2, 1e5));
  app.add_option("--trace", options->trace,
                 "show what the warps of one block waited for, in one case: FILE.json (events for Perfetto) "
                 "or FILE.svg")
      ->excludes("--sweep");
  app.add_option("--block", options->block,
                 "with --trace: the block of the launch (default: one that carries the state)")
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1} << 40));
  app.add_option("--products", options->products,
                 "what multiplies plain matrices of named tensors on a device: library (cuBLASLt, if it is "
                 "installed) or own")
      ->capture_default_str()
      ->check(CLI::IsMember({"library", "own"}));
  app.add_option("--jsonl", options->jsonl, "append the timings to this file of records");
  app.add_flag("--json", options->json, "print JSON instead of the table");
  return [options] { return run_bench(*options); };
}

}  // namespace samestate::cli
