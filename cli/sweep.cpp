#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>

#include "cli/commands.h"
#include "cli/devices.h"
#include "cli/duration.h"
#include "cli/filter.h"
#include "cli/interrupt.h"
#include "cli/options.h"
#include "cli/progress.h"
#include "cli/ranks.h"
#include "cli/run_lines.h"
#include "cli/subject_log.h"
#include "cli/table.h"
#include "cli/verdicts.h"
#include "harness/cases/keys.h"
#include "harness/processes/campaign.h"
#include "harness/processes/losses.h"
#include "harness/records/hash.h"
#include "measure/sweep/sweep.h"
#include "reports/records/json_lines.h"
#include "reports/text/sweep_answer.h"

namespace samestate::cli {
namespace {

struct SweepCommand {
  SweepOptions sweep;
  FilterOptions filter;
  bool list = false, json = false;
  std::string out = "out/sweep.jsonl", timeout = "10m", commit, shard = "0/1", devices;
  std::vector<std::string> plugins, over;
  std::string chunks;
  bool restart = false;
  int threads = default_threads();
};

/// Identifies a point.
std::string key_of(const std::string& series, const std::string& curve, const std::string& line) {
  return series + "\n" + curve + "\n" + line;
}
/// A sweep, with the points of it that one shard measures.
struct SweepPlan {
  std::vector<SweepCase> points;
  std::vector<std::int64_t> numbers;  ///< the points' indices among those of all shards
  RunPart part;                       ///< for the run line of the file
};

SweepPlan plan_of(const SweepCommand& options, std::vector<SweepCase> all) {
  SweepPlan plan;
  const Shard shard = shard_of(options.shard);
  std::vector<double> work;
  PlanHash hash;
  for (const SweepCase& point : all) {
    work.push_back(point.work);
    hash.add(format_case(point.c), point.series + "\t" + point.curve);
  }
  for (const std::size_t i : part_of(work, shard)) {
    plan.numbers.push_back(static_cast<std::int64_t>(i));
    plan.points.push_back(std::move(all[i]));
  }
  plan.part = {"sweep", shard.index, shard.count, std::ssize(plan.points), std::ssize(all), hash.text(), {}};
  const auto put = [&](const char* name, const std::string& value) {
    if (!value.empty()) plan.part.options[name] = value;
  };
  put("quick", options.sweep.quick ? "on" : "");
  put("series", options.sweep.series);
  put("system", options.sweep.system);
  put("kernel", options.sweep.kernel);
  put("where", filter_of(options.filter).text());
  put("timeout", options.timeout);
  put("case", options.sweep.from);
  put("over", fmt::format("{}", fmt::join(options.over, " ")));
  put("T", options.sweep.T > 0 ? std::to_string(options.sweep.T) : "");
  return plan;
}

/// Throws Error if the runs of a file do not belong to the shard that would continue it. A complete sweep may
/// have points of others besides its own.
void check_shard(const std::string& file, const Run& run, const RunPart& now) {
  const RunPart& then = run.part;
  if (then.shards == 1 && now.shards == 1) return;
  if (then.shard == now.shard && then.shards == now.shards && then.plan == now.plan) return;
  throw Error(
      fmt::format("{}: contains shard {}/{} of plan {}, but this is shard {}/{} of plan {}; measure every "
                  "point again with "
                  "--restart, or name another --out",
                  file, then.shard, then.shards, then.plan, now.shard, now.shards, now.plan));
}

/// A job is the case line of a point followed by its number in the plan, which is the same on all ranks.
std::size_t number_of(const std::string& job) { return std::stoull(job.substr(job.find('\t'))); }

JobRunner point_runner(const std::vector<SweepCase>& points, const KernelTable& table) {
  return [&](std::int64_t, const std::string& job) {
    const Measurement m = measure(points.at(number_of(job)), table);
    return Answer{point_text(m), broken_by(m.record.judgement), missed_device(m.record.judgement)};
  };
}

/// Returns what a process measured, or the verdict if it did not.
Measurement point_of(const JobResult& outcome, const SweepCase& point, const KernelTable& table) {
  const bool said = outcome.kind == JobResult::Kind::answered || outcome.kind == JobResult::Kind::unrepeated;
  Measurement m = said ? parse_point(outcome.text) : unmeasured(point, table, {});
  if (m.record.device == "cuda") m.record.gpu = outcome.device;
  const Verdict verdict = m.record.judgement.verdict;
  const std::optional<Judgement> lost = judgement_of_loss(outcome, verdict);
  if (!lost || (said && verdict == Verdict::fail)) return m;
  m = unmeasured(point, table, *lost);
  m.record.seconds = outcome.seconds;
  if (m.record.device == "cuda") m.record.gpu = outcome.device;
  return m;
}

/// Returns the points that the filter accepts.
std::vector<SweepCase> points_of(const SweepCommand& options, const KernelTable& table) {
  const CaseFilter filter = filter_of(options.filter);
  std::vector<SweepCase> all = plan_sweep(table, options.sweep);
  if (filter.empty()) return all;
  std::erase_if(all, [&](const SweepCase& point) {
    return !filter.takes(point.c, filter.reads_kernel() ? planned_record(point.c, table).kernel : "");
  });
  if (all.empty())
    throw Error("no point fits " + filter.text() +
                ": `samestate sweep --list` with fewer conditions shows them");
  return all;
}

void say_what_is_left_out(const SweepCommand& options) {
  if (!options.sweep.kernel.empty() && options.sweep.series.empty() && options.over.empty())
    fmt::print(stderr,
               "samestate: only {} is measured: the series drift is left out, because it needs a recurrent "
               "kernel\n",
               options.sweep.kernel);
}

/// Reads the axes of a user's own sweep: --over, and --chunks, which stands for --over chunk=. With --T or --case alone,
/// the axis is the chunk sizes of public models.
void read_axes(SweepCommand& options) {
  if (!options.chunks.empty()) options.over.insert(options.over.begin(), "chunk=" + options.chunks);
  const bool own = options.sweep.T > 0 || !options.sweep.from.empty();
  if (options.over.empty() && own) options.over = {"chunk=16,32,64,128,256"};
  for (const std::string& text : options.over) options.sweep.over.push_back(axis_of(text));
}

/// Returns the kernel to sweep. If --kernel names none, it is the one of --plugin or --subject, because users who bring a
/// kernel ask about that kernel; it must be chunked if the sweep varies the chunk.
std::string swept_kernel(const SweepCommand& options, const KernelTable& table) {
  if (!options.sweep.kernel.empty() || table.added().empty()) return options.sweep.kernel;
  std::vector<std::string_view> names;
  const bool own = !options.sweep.over.empty();
  const std::string form = own && options.sweep.over.front().key != "chunk" ? "" : "chunked";
  for (const KernelRow& row : table.added()) {
    if ((form.empty() || row.form == form) && (own || row.system->of_family())) names.emplace_back(row.name);
  }
  if (names.size() == 1) return std::string(names.front());
  const std::string& brought = table.added().front().options;
  if (names.empty())
    throw Error(fmt::format(
        "sweep varies the chunk, and none of{} is a chunked kernel of the recurrent family; name a kernel of "
        "this build with --kernel",
        brought));
  throw Error(fmt::format("--kernel: which one of{}? {}", brought, fmt::join(names, ", ")));
}

int run_sweep(SweepCommand options) {
  const double timeout = seconds_of("--timeout", options.timeout);
  const SubjectLog log(options.plugins);
  const KernelTable table = kernel_table(options.plugins, filter_of(options.filter));
  read_axes(options);
  options.sweep.kernel = swept_kernel(options, table);
  const SweepPlan plan = plan_of(options, points_of(options, table));
  const bool on_device = std::any_of(plan.points.begin(), plan.points.end(), [&](const SweepCase& point) {
    return planned_record(point.c, table).device != "cpu";
  });
  std::unique_ptr<Devices> devices;
  if (!options.devices.empty() || (!options.list && on_device)) devices = devices_of(options.devices, table);
  if (serves()) return serve(options.plugins, point_runner(plan.points, table), devices.get());
  if (options.list) {
    say_what_is_left_out(options);
    std::vector<std::string> lines;
    for (const SweepCase& point : plan.points) lines.push_back(format_case(point.c));
    fmt::print("{}", listed(lines, options.json));
    return kPass;
  }
  if (std::filesystem::is_directory(options.out))
    throw Error(options.out + ": is a folder; name a file to write the points to");
  std::set<std::string> done;
  std::vector<Measurement> answered;  ///< the points of a user's own sweep
  const bool resume = !options.restart && std::filesystem::exists(options.out);
  if (resume) {
    const RecordFile file = read_json_lines(options.out);
    const bool empty = std::filesystem::is_empty(options.out);
    if (!empty && (file.runs.empty() || !file.records.empty() || !file.timings.empty()))
      throw Error(
          options.out +
          ": exists and is not the file of a sweep; name another --out, or replace it with --restart");
    const std::string now = plugin_identities(options.plugins);
    for (const Run& run : file.runs) {
      check_shard(options.out, run, plan.part);
      if (run.plugins == now) continue;
      const auto named = [](const std::string& plugins) { return plugins.empty() ? "no plugin" : plugins; };
      throw Error(
          fmt::format("{}: its points were measured with {}, but this run has {}; measure every point again "
                      "with --restart, or name another --out",
                      options.out, named(run.plugins), named(now)));
    }
    for (const Measurement& m : file.points) {
      // Points that had no device then may have one now.
      if (m.record.judgement.verdict != Verdict::skipped)
        done.insert(key_of(m.series, m.curve, m.record.line));
    }
    for (const SweepCase& point : plan.points) {
      const std::string key = key_of(point.series, point.curve, format_case(point.c));
      const auto there = std::ranges::find_if(
          file.points, [&](const Measurement& m) { return key_of(m.series, m.curve, m.record.line) == key; });
      if (there != file.points.end() && done.contains(key)) answered.push_back(*there);
    }
  }
  std::vector<std::size_t> left;  ///< indices into plan.points
  for (std::size_t i = 0; i < plan.points.size(); ++i) {
    const SweepCase& point = plan.points[i];
    if (done.contains(key_of(point.series, point.curve, format_case(point.c)))) continue;
    left.push_back(i);
  }
  const std::size_t all = plan.points.size();
  if (resume)
    fmt::print("{}: {} of {} points are there, {} to go\n", options.out, all - left.size(), all, left.size());
  say_what_is_left_out(options);
  Run run = this_run(accelerator(), options.plugins, options.commit);
  run.part = plan.part;
  run.gpus = texts_of(devices.get());
  RunLines lines(options.out, run, resume ? JsonLinesWriter::Mode::append : JsonLinesWriter::Mode::replace);
  const auto stopped = [&] { return interrupted() || !lines.lost().empty(); };
  double work_left = 0.0;
  for (const std::size_t i : left) work_left += plan.points[i].work;
  note_interrupts();
  Progress progress(std::ssize(left), 0.0, work_left);
  Losses losses;
  VerdictCounts counts;
  const auto finish = [&](std::size_t i, const Measurement& m) {
    lines.point(m, plan.numbers[i]);
    if (!options.sweep.over.empty()) answered.push_back(m);
    losses.add(m.record);
    const Verdict verdict = m.record.judgement.verdict;
    ++counts[verdict];
    progress.step(m.record.judgement.ratio, is_failure(verdict), plan.points[i].work);
  };
  Pool pool(point_runner(plan.points, table),
            shared_process(options.threads, timeout, on_device, devices.get()));
  // If a kernel is no longer run because of its losses, its points are finished here.
  const auto is_skipped = [&](std::size_t i) {
    Record record = planned_record(plan.points[i].c, table);
    if (losses.none() || !losses.skip(record)) return false;
    finish(i, unmeasured(plan.points[i], table, record.judgement));
    return true;
  };
  std::size_t next = 0;
  const NextJob next_job = [&](std::int64_t) -> std::optional<Job> {
    while (next < left.size() && !stopped()) {
      const std::size_t i = left[next++];
      const SweepCase& point = plan.points[i];
      if (!is_skipped(i))
        return Job{static_cast<std::int64_t>(i), fmt::format("{}\t{}", format_case(point.c), i), 0, false,
                   point.work};
    }
    return std::nullopt;
  };
  JobObserver observer;
  observer.finished = [&](const Job& job, const JobResult& outcome) {
    const std::size_t i = number_of(job.text);
    finish(i, point_of(outcome, plan.points[i], table));
  };
  observer.stop = stopped;
  run_on(hand_out(options.plugins), pool, next_job, observer,
         {work_left, stopped, [&](const Job& job) { return !is_skipped(number_of(job.text)); }});
  progress.clear();
  const std::int64_t crashed = counts[Verdict::crash] + counts[Verdict::timeout];
  const std::int64_t failures = crashed + counts[Verdict::fail] + counts[Verdict::flaky];
  const std::int64_t not_run = counts[Verdict::skipped] + counts[Verdict::unsupported];
  std::int64_t measured = 0;
  for (const auto& [verdict, count] : counts) measured += count;
  if (stopped()) {
    fmt::print("{} {} of {} points were measured; the same command goes on where it stopped.\n",
               lines.lost().empty() ? "Interrupted before" : "The file could not be written before",
               std::ssize(left) - measured, left.size());
  }
  fmt::print("{} points measured into {}, {} failed{}{}. `samestate report {} --out DIR` draws them.\n",
             measured, options.out, failures,
             crashed > 0 ? fmt::format(" ({} crashed or hung)", crashed) : "",
             not_run > 0 ? fmt::format(", {} could not run here", not_run) : "", options.out);
  if (!options.sweep.over.empty()) {
    const SweepAxis& axis = options.sweep.over.front();
    for (const std::string& answer : sweep_answers(answered, axis.key, axis.values))
      fmt::print("{}\n", answer);
  }
  const int code = judge_sweep(counts, std::ssize(left), stopped());
  if (lines.lost().empty()) return all == 0 ? kNothingRan : code;
  fmt::print(stderr, "samestate: {}\n", lines.lost());
  return code == kPass || code == kVacuous ? kUsage : code;
}

}  // namespace

Command add_sweep(CLI::App& app) {
  auto options = std::make_shared<SweepCommand>();
  std::string series;
  for (const SweepSeries& s : sweep_series()) series += fmt::format("  {:<10} {}\n", s.name, s.summary);
  app.footer(
      "Measures the error of the chunked kernels, and the error that is allowed, along one quantity at a "
      "time:\n" +
      series +
      "Each point is written to a JSON Lines file when it is measured; the same command, given again, goes "
      "on "
      "where it stopped.\n\n"
      "  samestate sweep --quick\n"
      "  samestate sweep --series chunk --system retention --out retention.jsonl\n"
      "  samestate sweep --plugin ./mine.so --kernel mine.gated_delta_rule.chunked --out mine.jsonl\n"
      "  samestate sweep --contract bf16 --where 'chunk=16..128'\n"
      "  samestate sweep --T 65536 --chunks 16,64,256 --contract bf16     which chunk may I use there?\n"
      "  samestate sweep --case 'v1 retention T=512' --over dk=64,128,256 --over contract=fp32,bf16\n"
      "  samestate sweep --shard 0/4 --out part-0.jsonl          the first of four jobs; `samestate merge "
      "part-*.jsonl`\n"
      "                                                          then makes the one file\n\n" +
      filter_help());
  app.add_option("--out", options->out, "the file to which the points are written")->capture_default_str();
  app.add_flag("--quick", options->sweep.quick,
               "measure small shapes and few points, which takes less than a minute");
  app.add_option("--series", options->sweep.series, "only this series");
  app.add_option("--system", options->sweep.system, "only this system");
  add_repeatable(app, "--over", options->over,
                 "vary this key of the case line instead of the series: KEY=VALUE,VALUE..; the first --over "
                 "is the axis, and each further one makes one curve per value");
  app.add_option("--chunks", options->chunks, "16,64,256 is short for --over chunk=16,64,256")
      ->check(named());
  app.add_option("--T", options->sweep.T,
                 "number of tokens of the cases of --over (without --over, the chunk varies from 16 to 256)")
      ->check(CLI::Range(std::int64_t{1}, kLargestExtent));
  app.add_option(
         "--case", options->sweep.from,
         "the case line whose keys --over varies (default: one head of 128 x 128 with T=1024, in each "
         "contract)")
      ->check(named());
  app.add_option(
      "--kernel", options->sweep.kernel,
      "sweep this chunked kernel (default: the kernel of --plugin or --subject if there is one, else the "
      "CPU's)");
  add_plugin_option(app, options->plugins);
  add_devices_option(app, options->devices);
  add_filter_options(app, options->filter);
  app.add_option("--shard", options->shard, kShardHelp)->capture_default_str();
  app.add_flag("--list", options->list, "print the case lines without measuring them");
  app.add_flag("--json", options->json,
               "with --list: print JSON (the file of points is JSON Lines in any case)");
  app.add_flag("--restart", options->restart, "measure every point again");
  add_commit_option(app, options->commit);
  app.add_option("--timeout", options->timeout, "a point that takes longer is a timeout (0: no limit)")
      ->capture_default_str();
  app.add_option("--threads", options->threads, "number of points that are measured at once")
      ->capture_default_str()
      ->check(CLI::Range(1, 1024));
  return [options] { return run_sweep(*options); };
}

}  // namespace samestate::cli
