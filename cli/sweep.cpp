#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <memory>
#include <mutex>
#include <set>
#include <thread>

#include "cli/commands.h"
#include "cli/progress.h"
#include "cli/table.h"
#include "measure/sweep/sweep.h"
#include "reports/json_lines.h"
#include "samestate_kernel_sources.h"
#include "samestate_version.h"

namespace samestate::cli {
namespace {

struct Options {
  SweepOptions sweep;
  std::string out = "out/sweep.jsonl";
  std::vector<std::string> plugins;
  bool restart = false;
  int threads = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
};

/// What tells one point from another.
std::string key_of(const std::string& series, const std::string& curve, const std::string& line) {
  return series + "\n" + curve + "\n" + line;
}

int run_sweep(const Options& options) {
  const KernelTable table = kernel_table(options.plugins);
  const std::vector<SweepCase> all = plan_sweep(table, options.sweep);
  if (std::filesystem::is_directory(options.out))
    throw Error(options.out + ": is a folder; name the file for the points");
  std::set<std::string> done;
  const bool resume = !options.restart && std::filesystem::exists(options.out);
  if (resume) {
    for (const Measurement& m : read_json_lines(options.out).points) {
      // What had no device then may have one now.
      if (m.record.judgement.verdict != Verdict::skipped)
        done.insert(key_of(m.series, m.curve, m.record.line));
    }
  }
  std::vector<const SweepCase*> left;
  for (const SweepCase& point : all) {
    if (!done.contains(key_of(point.series, point.curve, format_case(point.c)))) left.push_back(&point);
  }
  if (resume)
    fmt::print("{}: {} of {} points are there, {} to go\n", options.out, all.size() - left.size(), all.size(),
               left.size());
  const Accelerator device = accelerator();
  JsonLinesWriter lines(options.out,
                        {SAMESTATE_VERSION, "", device.name.empty() ? "cpu" : device.name, device.driver,
                         device.toolkit, SAMESTATE_CUDA_SOURCES},
                        resume ? JsonLinesWriter::Mode::append : JsonLinesWriter::Mode::replace);
  double work_left = 0.0;
  for (const SweepCase* point : left) work_left += point->work;
  Progress progress(std::ssize(left), 0.0, work_left);
  std::atomic<std::size_t> next{0};
  std::mutex guard;
  std::int64_t failures = 0;
  std::int64_t not_run = 0;
  std::exception_ptr broken;
  const auto work = [&] {
    for (std::size_t i = next++; i < left.size(); i = next++) {
      try {
        const Measurement m = measure(*left[i], table);
        lines.point(m);
        const bool failed =
            m.record.judgement.verdict == Verdict::fail || m.record.judgement.verdict == Verdict::crash;
        const std::lock_guard lock(guard);
        failures += failed ? 1 : 0;
        const Verdict verdict = m.record.judgement.verdict;
        not_run += verdict == Verdict::skipped || verdict == Verdict::unsupported ? 1 : 0;
        progress.step(m.record.judgement.ratio, failed, left[i]->work);
      } catch (...) {
        const std::lock_guard lock(guard);
        broken = std::current_exception();
        next = left.size();
      }
    }
  };
  {
    std::vector<std::jthread> threads;
    for (int i = 1; i < options.threads; ++i) threads.emplace_back(work);
    work();
  }
  if (broken) std::rethrow_exception(broken);
  fmt::print("{} points measured into {}, {} failed{}. `samestate report {} --out DIR` draws them.\n",
             left.size(), options.out, failures,
             not_run > 0 ? fmt::format(", {} could not run here", not_run) : "", options.out);
  if (all.empty() || (!left.empty() && not_run == std::ssize(left))) return kNothingRan;
  return failures > 0 ? kFail : kPass;
}

}  // namespace

Command add_sweep(CLI::App& app) {
  auto options = std::make_shared<Options>();
  std::string series;
  for (const SweepSeries& s : sweep_series()) series += fmt::format("  {:<10} {}\n", s.name, s.summary);
  app.footer(
      "Measures the error of the chunked kernels, and what it may be, along one quantity at a time:\n" +
      series +
      "The points go to a JSON Lines file as they are measured; the same command again goes on where it "
      "stopped.\n\n"
      "  samestate sweep --quick\n"
      "  samestate sweep --series chunk --system retention --out retention.jsonl\n"
      "  samestate sweep --plugin ./mine.so --kernel mine.gated_delta_rule.chunked --out mine.jsonl");
  app.add_option("--out", options->out, "the file of points")->capture_default_str();
  app.add_flag("--quick", options->sweep.quick, "small shapes and few points: under a minute");
  app.add_option("--series", options->sweep.series, "only this series");
  app.add_option("--system", options->sweep.system, "only this system");
  app.add_option("--kernel", options->sweep.kernel, "this chunked kernel instead of the CPU kernels");
  app.add_option("--plugin", options->plugins, "load kernels from a shared library (repeatable)");
  app.add_flag("--restart", options->restart, "measure every point again");
  app.add_option("--threads", options->threads, "points at a time")
      ->capture_default_str()
      ->check(CLI::Range(1, 1024));
  return [options] { return run_sweep(*options); };
}

}  // namespace samestate::cli
