#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include "cli/commands.h"
#include "cli/options.h"
#include "cli/progress.h"
#include "cli/table.h"
#include "measure/bench/bench.h"
#include "reference/error.h"
#include "reports/json_lines.h"
#include "samestate_kernel_sources.h"
#include "samestate_version.h"

namespace samestate::cli {
namespace {

struct Options {
  BenchPlan plan;
  BenchOptions bench;
  std::vector<std::string> plugins;
  std::string jsonl, peer;
  double peer_timeout = 120.0;
  double gigabytes = 16.0;
  bool json = false;
  bool sweep = false;
};

/// Three digits in the unit that suits.
std::string time_text(double seconds) {
  if (std::isnan(seconds)) return "-";
  if (seconds < 1e-3) return fmt::format("{:.3g} us", seconds * 1e6);
  if (seconds < 1.0) return fmt::format("{:.3g} ms", seconds * 1e3);
  return fmt::format("{:.3g} s", seconds);
}

std::string scaled(double value, double unit, const char* format = "{:.3g}") {
  return std::isnan(value) || value == 0.0 ? "-" : fmt::format(fmt::runtime(format), value / unit);
}

std::string shape_text(const TimedCase& t) {
  return fmt::format("{} B{} T{} H{}/{} d{}x{}{}", t.record.contract, t.B, t.T, t.Hk, t.Hv, t.dk, t.dv,
                     t.chunk > 0 ? fmt::format(" C{}", t.chunk) : "");
}

std::string verdict_text(const TimedCase& t) {
  std::string text(name_of(t.record.judgement.verdict));
  if (t.heads_judged > 0 && t.heads_judged < t.heads)
    text += fmt::format(" ({} of {} heads)", t.heads_judged, t.heads);
  return text;
}

using Row = std::vector<std::string>;

Row row_of(const TimedCase& t) {
  const double median = t.time.median;
  return {t.record.kernel,
          shape_text(t),
          time_text(median),
          std::isnan(median) ? "-" : fmt::format("{}..{}", time_text(t.time.p10), time_text(t.time.p90)),
          t.timed.empty() ? "-" : t.timed,
          t.variant.empty() ? "-" : t.variant,
          time_text(t.memory_floor),
          time_text(t.compute_floor),
          std::isnan(t.share) ? "-" : fmt::format("{:.1f} %", 100.0 * t.share),
          scaled(static_cast<double>(t.operations) / median, 1e12),
          scaled(static_cast<double>(t.bytes) / median, 1e9),
          std::isnan(t.peer_time.median)
              ? "-"
              : fmt::format("{} {} ({:.3g}x)", t.peer, time_text(t.peer_time.median), t.peer_ratio),
          verdict_text(t)};
}

void print_table(const std::vector<TimedCase>& all) {
  std::vector<Row> rows = {{"kernel", "case", "median", "p10..p90", "timed", "variant", "memory floor",
                            "compute floor", "of floor", "TFLOP/s", "GB/s", "peer", "verdict"}};
  for (const TimedCase& t : all) rows.push_back(row_of(t));
  std::vector<std::size_t> width(rows.front().size(), 0);
  for (const Row& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) width[i] = std::max(width[i], row[i].size());
  }
  for (const Row& row : rows) {
    std::string text;
    for (std::size_t i = 0; i < row.size(); ++i)
      text += i + 1 < row.size() ? fmt::format("{:<{}}  ", row[i], width[i]) : row[i];
    fmt::print("{}\n", text);
  }
}

nlohmann::json number(double value) { return std::isfinite(value) ? nlohmann::json(value) : nullptr; }

void print_json(const std::vector<TimedCase>& all) {
  nlohmann::json rows = nlohmann::json::array();
  for (const TimedCase& t : all) {
    rows.push_back({{"line", t.record.line},
                    {"kernel", t.record.kernel},
                    {"verdict", name_of(t.record.judgement.verdict)},
                    {"reason", t.record.judgement.reason},
                    {"heads", t.heads},
                    {"heads_judged", t.heads_judged},
                    {"timed", t.timed},
                    {"variant", t.variant},
                    {"median", number(t.time.median)},
                    {"p10", number(t.time.p10)},
                    {"p90", number(t.time.p90)},
                    {"samples", t.time.samples},
                    {"calls_per_sample", t.calls_per_sample},
                    {"copies", t.copies},
                    {"bytes", t.bytes},
                    {"operations", t.operations},
                    {"copy_rate", t.copy_rate},
                    {"product_rate", t.product_rate},
                    {"memory_floor", number(t.memory_floor)},
                    {"compute_floor", number(t.compute_floor)},
                    {"share", number(t.share)},
                    {"peer", t.peer},
                    {"peer_note", t.peer_note},
                    {"peer_median", number(t.peer_time.median)},
                    {"peer_ratio", number(t.peer_ratio)}});
  }
  fmt::print("{}\n", rows.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
}

/// Bad cases are told with the command that repeats them, worst exit code first.
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

/// A case and which variant of its kernel; empty: the one that the kernel chooses.
struct Entry {
  Case c;
  std::string variant;
};

/// Each case once; in a sweep once for every variant of its kernel.
std::vector<Entry> entries_of(const std::vector<Case>& cases, const KernelTable& table, bool sweep) {
  std::vector<Entry> entries;
  for (const Case& c : cases) {
    const Kernel& kernel = table.named(c.kernel);
    if (!sweep || kernel.variants.empty()) entries.push_back({c, ""});
    if (!sweep) continue;
    for (const Variant& variant : kernel.variants) entries.push_back({c, variant.name});
  }
  return entries;
}

int run_bench(Options options) {
  const KernelTable table = kernel_table(options.plugins);
  const Accelerator device = accelerator();
  if (options.plan.device.empty()) options.plan.device = device.name.empty() ? "cpu" : "cuda";
  const std::vector<Case> cases = bench_cases(table, options.plan);
  if (cases.empty()) {
    fmt::print(stderr, "samestate: no kernel of this build fits; `samestate list kernels` shows them\n");
    return kNothingRan;
  }
  options.bench.most_bytes = options.gigabytes * 1e9;
  const std::string name = device.name.empty() ? "cpu" : device.name;
  std::unique_ptr<JsonLinesWriter> lines;
  if (!options.jsonl.empty()) {
    lines = std::make_unique<JsonLinesWriter>(
        options.jsonl,
        Run{SAMESTATE_VERSION, "", name, device.driver, device.toolkit, SAMESTATE_CUDA_SOURCES},
        JsonLinesWriter::Mode::append);
  }
  std::unique_ptr<Peer> peer;
  if (!options.peer.empty()) peer = std::make_unique<Peer>(options.peer, options.peer_timeout);

  std::optional<Ceilings> host;
  std::optional<Ceilings> accelerated;
  std::vector<TimedCase> all;
  const std::vector<Entry> entries = entries_of(cases, table, options.sweep);
  Progress progress(std::ssize(entries));
  for (const auto& [c, variant] : entries) {
    const bool on_host = table.named(c.kernel).device == "cpu";
    if (on_host) host = host_ceilings(bytes_of_call(c, false), options.bench.threads);
    if (!on_host && !accelerated) accelerated = device_ceilings();
    options.bench.request.variant = variant;
    BenchResult result = bench_case(c, table, options.bench, on_host ? *host : *accelerated, peer.get());
    if (!variant.empty() && result.timed.record.judgement.verdict == Verdict::unsupported) continue;
    result.timed.record.device = on_host ? "cpu" : name;
    if (lines) lines->timing(result.timed);
    const Judgement& j = result.timed.record.judgement;
    const bool bad = j.verdict == Verdict::fail || j.verdict == Verdict::crash;
    progress.step(j.ratio, bad);
    if (!result.problem.empty()) {
      progress.clear();
      fmt::print(stderr, "samestate: no peer for {}: {}\n", result.timed.record.line, result.problem);
    }
    all.push_back(std::move(result.timed));
  }
  progress.clear();
  if (options.json) {
    print_json(all);
    return exit_code(all);
  }
  print_table(all);
  if (host) fmt::print("Ceilings of cpu: {}.\n", host->note);
  if (accelerated) {
    fmt::print("Ceilings of {}: copy {} GB/s, products bf16 {} and fp32 {} TFLOP/s ({}).\n", name,
               scaled(accelerated->copy, 1e9, "{:.0f}"), scaled(accelerated->bf16, 1e12),
               scaled(accelerated->fp32, 1e12), accelerated->note);
  }
  std::map<std::string, std::int64_t> unanswered;
  for (const TimedCase& t : all) {
    if (std::isnan(t.peer_time.median) && !t.peer_note.empty()) ++unanswered[t.peer_note];
  }
  for (const auto& [reason, count] : unanswered)
    fmt::print("No time of the peer in {} case(s): {}\n", count, reason);
  for (const TimedCase& t : all) {
    const Judgement& j = t.record.judgement;
    if (j.verdict != Verdict::pass)
      fmt::print("{}: {}: samestate bench --case '{}'\n", name_of(j.verdict),
                 j.reason.empty() ? j.gate : j.reason, t.record.line);
  }
  return exit_code(all);
}

}  // namespace

Command add_bench(CLI::App& app) {
  auto options = std::make_shared<Options>();
  options->bench.threads = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  app.footer(
      "Times each kernel, and judges what the last timed call wrote: a wrong kernel has no time and the exit "
      "code is 1.\n"
      "The floor is the bytes that every evaluation must move over the rate of a copy, or the operations of "
      "the form over the\n"
      "rate of a large matrix product, both measured in the same run; docs/bench.md says how, and what a "
      "peer "
      "must answer.\n\n"
      "  samestate bench --quick\n"
      "  samestate bench --kernel cuda.gated_delta_rule.chunked --jsonl out/bench.jsonl\n"
      "  samestate bench --case 'v1 retention B=4 T=2048 Hk=8 dk=128 contract=bf16'\n"
      "  samestate bench --plugin ./mine.so --kernel mine.gated_delta_rule.chunked\n"
      "  samestate bench --peer 'python3 examples/peers/fla_bench.py'");
  app.add_option("--kernel", options->plan.kernels, "only this kernel (repeatable)");
  app.add_option("--system", options->plan.system, "only this system");
  app.add_option("--device", options->plan.device,
                 "only kernels of this device: cpu or cuda (default: cuda where there is one)");
  app.add_option("--case", options->plan.lines, "this case instead of the standard shapes (repeatable)");
  app.add_option("--plugin", options->plugins, "load kernels from a shared library (repeatable)");
  app.add_flag("--sweep", options->sweep,
               "each case with every variant of its kernel that takes it (list kernels --long)");
  app.add_flag("--quick", options->plan.quick, "the smaller set of shapes");
  app.add_option("--seconds", options->bench.request.seconds, "time spent in timed calls of a case")
      ->capture_default_str()
      ->check(number_in(1e-3, 3600.0));
  app.add_option("--judge-heads", options->bench.judged_heads,
                 "heads of a case that the oracle judges, spread over all (0: all)")
      ->capture_default_str()
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1} << 40));
  app.add_option("--threads", options->bench.threads, "for data and judging, and for a CPU kernel")
      ->capture_default_str()
      ->check(CLI::Range(1, 1024));
  app.add_option("--max-memory", options->gigabytes, "GB of tensors in memory; a larger case is skipped")
      ->capture_default_str()
      ->check(number_in(1e-3, 1e6));
  app.add_option("--peer", options->peer, "a command that times somebody else's kernels (docs/bench.md)");
  app.add_option("--peer-timeout", options->peer_timeout, "seconds that the peer has for a case")
      ->capture_default_str()
      ->check(number_in(1e-2, 1e5));
  app.add_option("--jsonl", options->jsonl, "append the timings to this file of records");
  app.add_flag("--json", options->json, "machine-readable, instead of the table");
  return [options] { return run_bench(*options); };
}

}  // namespace samestate::cli
