#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "cli/commands.h"
#include "cli/corpus.h"
#include "cli/devices.h"
#include "cli/duration.h"
#include "cli/filter.h"
#include "cli/gate_plan.h"
#include "cli/gate_result.h"
#include "cli/gate_run.h"
#include "cli/interrupt.h"
#include "cli/learn.h"
#include "cli/options.h"
#include "cli/rank_place.h"
#include "cli/ranks.h"
#include "cli/subject_log.h"
#include "cli/table.h"
#include "fuzz/plan/interpreted.h"
#include "harness/cases/system.h"
#include "harness/records/hash.h"
#include "harness/subjects/subject.h"
#include "oracles/judge_policy.h"
#include "reference/error.h"
#include "reports/records/baseline.h"
#include "reports/records/failure_groups.h"
#include "reports/records/judged_share.h"
#include "reports/records/resume_run.h"
#include "reports/records/summary.h"
#include "reports/text/timings.h"

namespace samestate::cli {
namespace {

struct GateOptions {
  GatePlanOptions plan;
  FilterOptions filter;
  std::string shard = "0/1";
  bool list = false, why = false, json = false, fail_fast = false, resume = false, timings = false;
  std::vector<std::string> plugins;
  std::string jsonl, junit, markdown, coverage, baseline, new_baseline, timeout = "10m", budget = "0";
  std::string corpus = standard_corpus(), commit, devices;
  bool each_device = false;
  double baseline_factor = 2.0;
  double least_judged = 0.5;
  int threads = default_threads();
};

/// Returns the options that affect the verdict but not the cases, for the run line of the file.
std::map<std::string, std::string> judging_options(const GateOptions& options,
                                                   const std::optional<Baseline>& baseline) {
  std::map<std::string, std::string> out{{"timeout", options.timeout},
                                         {"budget", options.budget},
                                         {"least-judged", fmt::format("{}", options.least_judged)}};
  if (options.fail_fast) out["fail-fast"] = "on";
  if (options.each_device) out["each-device"] = "on";
  if (!baseline) return out;
  PlanHash hash;
  for (const auto& [line, ratio] : baseline->ratios) hash.add(line, fmt::format("{}", ratio));
  out["baseline"] = fmt::format("{} ({})", options.baseline, hash.text());
  out["baseline-factor"] = fmt::format("{}", options.baseline_factor);
  return out;
}

/// Says how to ask for less work, as far as the options ask for more than usual.
std::string_view smaller_plan(const PlanOptions& options) {
  return !options.filter.empty() ? "smaller sizes in --where"
         : options.effort > 1.0  ? "a smaller --effort"
                                 : "fewer kernels (--kernel)";
}

/// Returns true if somebody or something reads more of the result than its summary.
bool reports_to(const GateOptions& options) {
  return options.json || !options.jsonl.empty() || !options.junit.empty() || !options.markdown.empty() ||
         !options.coverage.empty();
}

/// Returns true if the plan is run as it is made, by this process alone.
bool is_whole(const GateOptions& options, double budget) {
  return options.plan.shard.count == 1 && owes_pairs(options.plan.plan, budget);
}

/// Counts the pairs that a whole plan must cover and that its judged cases did cover; a plan that was cut
/// says nothing about them.
void count_pairs(const GateOptions& options, const Plan& plan, bool whole, GateResult& result) {
  const PlanOptions& of = options.plan.plan;
  if (plan.cases.empty() || (options.coverage.empty() && (of.max_cases > 0 || !of.filter.empty()))) return;
  const PlanCoverage coverage = judged_of(plan, result.records);
  result.coverage = coverage_text(coverage, whole);
  if (whole) result.pairs = coverage.pairs();
  if (!options.coverage.empty()) result.coverage_json = coverage.json();
}

/// Counts which calls of servers and trainers were judged.
void count_calls(const GateOptions& options, const Plan& plan, GateResult& result) {
  const CallCoverage calls = judged_calls(plan, result.records);
  result.coverage += calls.text(kShownCalls);
  if (!options.coverage.empty()) result.coverage_json = with_calls(result.coverage_json, calls);
}

/// Turns records whose ratio has grown into failures. A case counts only if it is deterministic: in two more
/// runs its ratio is the same to the last bit.
void mark_grown(const Baseline& baseline, const GateOptions& options, const KernelTable& table,
                GateResult& result) {
  const BaselineReport report = compare_with(baseline, result.records, options.baseline_factor);
  Workers again([&](const Case& c) { return case_result(run_case(c, table)); },
                {1, seconds_of("--timeout", options.timeout)});
  const auto ratio_of = [&](const Case& c) { return again.run_one(c).judgement.ratio; };
  result.baseline = options.baseline;
  result.end.compared = report.compared;
  for (const Regression& r : report.grown) {
    Record& record = result.records[r.record];
    const Case c = parse_case(record.line);
    const bool deterministic = ratio_of(c) == r.now && ratio_of(c) == r.now;
    result.growth +=
        fmt::format("  ratio {:.4g}, was {:.4g}{}: {}\n", r.now, r.before,
                    deterministic ? "" : " (not deterministic: does not count)", repro_command(record));
    if (!deterministic) continue;
    result.end.grown.push_back({result.numbers[r.record], r.before});
    count_as_grown(record, r.before, options.baseline_factor);
  }
  result.growth += fmt::format(
      "baseline {} of samestate {}: {} compared, {} grew more than {:g} times to above {:g}, {} new, {} not "
      "run\n",
      options.baseline, baseline.version, report.compared, result.end.grown.size(), options.baseline_factor,
      kBaselineFloor, report.unknown, report.not_run);
}

/// Throws Error if no case belongs to a kernel that --each-device compares.
void require_cuda(const std::vector<Case>& cases, const KernelTable& table) {
  const auto of_cuda = [&](const Case& c) { return planned_record(c, table).device == "cuda"; };
  if (std::none_of(cases.begin(), cases.end(), of_cuda))
    throw Error(
        "--each-device: no case of this plan has a cuda kernel; choose one with --device cuda or --kernel");
}

/// Says how many devices had cases, and how many cases were run on each.
std::string devices_text(const std::vector<Record>& records, std::int64_t compared, bool each) {
  std::set<std::string> gpus;
  for (const Record& r : records) gpus.insert(r.gpu);
  gpus.erase("");
  if (gpus.empty()) return "";
  return fmt::format(" and {} device{}{}", gpus.size(), gpus.size() == 1 ? "" : "s",
                     each ? fmt::format(", {} on each of them", counted(compared, "case")) : "");
}

/// Returns the plan's lists that have cases, as comments that readers of case lines skip.
std::string legend(const Plan& plan) {
  std::map<const PlanList*, std::int64_t> counts;
  for (const PlanList* list : plan.lists) ++counts[list];
  std::string out;
  for (const PlanList& list : plan_lists()) {
    if (const auto found = counts.find(&list); found != counts.end())
      out += fmt::format("# {}, {}: {}\n", list.name, counted(found->second, "case"), list.text());
  }
  return out;
}

/// With `why`, prints after each line the plan's list that it comes from and the reason for that list.
int print_plan(const Plan& plan, bool json, bool why) {
  if (json) {
    // The cost of a case in the plan's unit, so that every shard or machine can be given the same amount.
    nlohmann::ordered_json rows = nlohmann::ordered_json::array();
    for (std::size_t i = 0; i < plan.cases.size(); ++i) {
      const Case& c = plan.cases[i];
      rows.push_back({{"line", format_case(c)}, {"work", system_named(c.system).work(c, kGatePolicy)}});
      if (!why) continue;
      rows.back()["list"] = plan.lists[i]->name;
      rows.back()["why"] = plan.lists[i]->why;
    }
    fmt::print("{}\n", rows.dump(2));
    return kPass;
  }
  if (why) fmt::print("{}", legend(plan));
  std::vector<std::string> lines;
  for (std::size_t i = 0; i < plan.cases.size(); ++i)
    lines.push_back(format_case(plan.cases[i]) + (why ? fmt::format("  # {}", plan.lists[i]->name) : ""));
  fmt::print("{}", listed(lines, false));
  return kPass;
}

/// Leaves the kernels of this repository that need a device out of a plan for a machine that has none, if others are
/// left, and returns a sentence about it; a plan of which several machines run a part stays as it is.
std::string leave_out_devices(const GateOptions& options, const std::vector<const KernelRow*>& wanted,
                              PlanOptions& plan) {
  const auto cuda = std::ranges::count(wanted, "cuda", &KernelRow::device);
  const bool shared = options.plan.shard.count > 1 || rank_place().ranks > 1;
  if (!plan.device.empty() || !options.plugins.empty() || shared || cuda == 0 || cuda == std::ssize(wanted) ||
      !accelerator().name.empty())
    return "";
  plan.device = "cpu";
  return fmt::format("no CUDA device: {} not planned; on a machine with one: samestate gate --device cuda",
                     cuda == 1 ? "1 kernel of cuda is" : fmt::format("{} kernels of cuda are", cuda));
}

/// The kernels run in worker processes: if one crashes, hangs, or ends its process with an arbitrary code,
/// that becomes its verdict and the run continues.
int run_gate(GateOptions options) {
  const double timeout = seconds_of("--timeout", options.timeout);
  const double budget = seconds_of("--budget", options.budget);
  if (options.why && !options.list)
    throw Error("--why names the list of the plan that each line of --list comes from: add --list");
  require_different({{"--jsonl", options.jsonl},
                     {"--junit", options.junit},
                     {"--markdown", options.markdown},
                     {"--coverage", options.coverage},
                     {"--write-baseline", options.new_baseline}});
  PlanOptions& of_plan = options.plan.plan;
  of_plan.filter = filter_of(options.filter);
  SubjectLog log(options.plugins);
  KernelTable table = kernel_table(options.plugins, of_plan.filter, options.plan.strict);
  of_plan.kernel = kernels_asked(of_plan.kernel, table, of_plan.system, of_plan.device, of_plan.filter);
  const std::vector<const KernelRow*> wanted =
      wanted_kernels(table, of_plan.system, of_plan.device, of_plan.kernel);
  std::unique_ptr<Devices> devices;
  if (!options.list && (of_plan.device != "cpu" || !options.devices.empty()))
    devices = devices_of(options.devices, table, wanted);
  if (options.each_device && !options.list) require_each_device(devices.get());
  if (serves()) return serve(options.plugins, job_runner(case_runner(table)), devices.get());
  if (!options.list && rank_place().ranks == 1 && need_a_device(table, wanted) &&
      accelerator().name.empty()) {
    fmt::print(
        stderr,
        "samestate: no CUDA device: none of the {} wanted can run; run it where `nvidia-smi` shows a device, "
        "or gate the CPU's kernels with --device cpu\n",
        counted(std::ssize(wanted), "kernel"));
    // Reports list the cases that were skipped, for which the plan is made; it takes minutes.
    if (!reports_to(options)) return kNothingRan;
  }
  // Errors are reported before the plan is made, which takes a while.
  if (options.resume && options.jsonl.empty())
    throw Error("--resume needs --jsonl FILE, the file of the run");
  options.plan.shard = shard_of(options.shard);
  const std::vector<CorpusEntry> corpus = corpus_of(options.corpus);
  std::optional<Baseline> baseline;
  if (!options.baseline.empty()) baseline = read_baseline(options.baseline);
  for (const std::string& path :
       {options.jsonl, options.junit, options.markdown, options.new_baseline, options.coverage}) {
    if (!path.empty() && !options.list) require_writable(path);
  }
  if (!options.list) note_interrupts();
  const std::string no_device = options.list ? "" : leave_out_devices(options, wanted, of_plan);
  std::vector<std::string> learned, lacking;
  if (!options.list) learn_by_calls(table, options.plan, timeout, devices.get(), learned, lacking);
  GatePlan plan = gate_plan(options.plan, table, corpus);
  if (!no_device.empty()) plan.notes.insert(plan.notes.begin(), no_device);
  if (options.list) return print_plan(plan.plan, options.json, options.why);
  if (options.each_device) require_cuda(plan.plan.cases, table);
  std::string lasts = interpreted_text(plan.plan.cases, table, options.threads);
  if (lasts.empty() && budget == 0.0 && rank_place().ranks == 1)
    lasts = long_plan_text(plan.plan.cases, table, options.threads, smaller_plan(of_plan));
  if (!lasts.empty()) fmt::print(stderr, "samestate: {}\n", lasts);
  GateResult result;
  result.run = this_run(accelerator(), options.plugins, options.commit);
  result.run.gpus = texts_of(devices.get());
  result.run.planned = std::ssize(plan.plan.cases);
  result.run.part = part_of_gate(options.plan, plan, judging_options(options, baseline));
  EarlierCases earlier;
  if (options.resume) {
    earlier = go_on_with(options.jsonl, result.run, plan.numbers);
    if (earlier.records.empty())
      fmt::print(stderr, "samestate: {} contains no judged case, so all {} cases are run\n", options.jsonl,
                 result.run.planned);
  }
  RunLines lines(options.jsonl, result.run,
                 options.resume ? JsonLinesWriter::Mode::resume : JsonLinesWriter::Mode::replace);
  GateRunOptions how{{}, options.timeout, options.fail_fast};
  how.campaign.threads = options.threads;
  how.campaign.fail_fast = options.fail_fast;
  how.campaign.budget = budget;
  how.campaign.timeout = timeout;
  how.campaign.ranks = hand_out(options.plugins);
  how.campaign.devices = devices.get();
  how.campaign.each_device = options.each_device;
  how.campaign.compiling = options.plan.compiles ? 0.0 : kCompileSeconds;
  how.campaign.compilers = std::max(1, patience_of_environment().processes);
  GateRun run(table, std::move(how), lines);
  const auto begin = std::chrono::steady_clock::now();
  run.take(earlier.records, earlier.numbers);
  run.run_rest(plan.plan.cases, plan.numbers);
  if (is_whole(options, budget)) run.cover_pairs(plan.plan, options.plan, plan.total);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  run.clear_progress();

  result.records = run.records();
  result.numbers = run.numbers();
  result.left = run.left();
  result.least_judged = options.least_judged;
  count_pairs(options, plan.plan, is_whole(options, budget) && run.left() == 0, result);
  count_calls(options, plan.plan, result);
  mark_missing_devices(result.records);
  result.end.lacking = lacking;
  result.end.left_out = plan.refused;
  count_refusals(result, [&](const std::string& kernel) { return table.row_named(kernel).limits.text(); });
  if (baseline) mark_grown(*baseline, options, table, result);
  explain_kinds(result, table, options.fail_fast);
  const bool failed = !failure_groups(result.records).empty();
  RunEnd& end = result.end;
  end.seconds = seconds.count();
  end.seed = std::to_string(of_plan.seed);
  end.not_complete = why_left(run.ran(), run.left(), options.fail_fast && failed, lines.lost());
  end.interrupted = interrupted() || !lines.lost().empty();
  end.not_started = run.not_started();
  end.notes = said_by_subjects(options.plugins);
  end.notes.insert(end.notes.end(), learned.begin(), learned.end());
  end.notes.insert(end.notes.end(), plan.notes.begin(), plan.notes.end());
  if (devices) end.notes.insert(end.notes.end(), devices->losses().begin(), devices->losses().end());
  for (std::string& sentence : run.not_compiled()) end.notes.push_back(std::move(sentence));
  if (const std::string printed = log.text(); !printed.empty()) end.notes.push_back(printed);
  judge_gate(result);
  if (options.timings) result.timings = timings_text(result.records);
  result.how = fmt::format(" on {} thread(s){}{}, seed {}{}", options.threads,
                           devices_text(result.records, run.compared(), options.each_device), ranks_text(),
                           of_plan.seed, options.plan.shard.count > 1 ? ", shard " + options.shard : "");
  return report_gate(
      result, {options.junit, options.markdown, options.coverage, options.new_baseline, options.json}, lines);
}

}  // namespace

Command add_gate(CLI::App& app) {
  auto options = std::make_shared<GateOptions>();
  app.footer(
      "The plan has a budget of time, which its kernels share: about 100 seconds of judging on two cores, "
      "times --effort.\n"
      "At least half of it goes to ordinary calls: public models as they are trained and served. The rest is "
      "shared by\n"
      "edge cases, by a set that contains every pair of choices and every boundary of each size, and by "
      "random cases. The\n"
      "cases of --corpus run first. The same options give the same cases on every machine, but without a "
      "CUDA device\n"
      "kernels that need one are not planned, unless nothing else is asked for. Failures are grouped by "
      "kernel, form, law\n"
      "and likely cause, each with the command that repeats an example.\n\n"
      "  samestate gate --system retention --effort 10\n"
      "  samestate gate --plugin ./mine.so --kernel mine.gated_delta_rule.chunked --junit gate.xml\n"
      "  samestate gate --contract bf16 --where 'T=64..4096' --exclude regime=measured --fail-fast\n"
      "  samestate gate --shard 0/4 --jsonl part-0.jsonl        the first of four jobs; `samestate merge "
      "part-*.jsonl`\n"
      "                                                         then gives the verdict of one\n"
      "  samestate gate --jsonl gate.jsonl --resume             after a crash of the machine: runs the cases "
      "that the file does not contain yet\n"
      "  mpirun -n 64 samestate gate --jsonl gate.jsonl         on all cores of several machines "
      "(docs/do/mpi.md)\n"
      "  samestate gate --device cuda --devices 0,2             two GPUs of this host share the cases; "
      "without --devices, all of them do\n"
      "  samestate gate --device cuda --each-device             every GPU runs each case, and all must "
      "return the same bits (docs/do/devices.md)\n"
      "  samestate gate --system retention --list | samestate repro -\n"
      "  samestate gate --system retention --list --why         prints with each line the list that it "
      "comes from, as a comment that repro ignores\n\n" +
      filter_help());
  app.add_option("--jsonl", options->jsonl, "write every case as JSON Lines, flushed case by case")
      ->check(named());
  app.add_flag("--resume", options->resume,
               "continue the run in the --jsonl file: judge the cases that it does not contain yet");
  app.add_option("--junit", options->junit, "write JUnit XML")->check(named());
  app.add_option("--markdown", options->markdown, "write a Markdown summary, worst first")->check(named());
  app.add_option("--coverage", options->coverage,
                 "write to this JSON file which pairs of contract, regime, form, law, sizes and settings "
                 "were judged, "
                 "by kernel")
      ->check(named());
  app.add_option("--corpus", options->corpus, "first replay the cases in this folder")->check(named());
  app.add_option("--baseline", options->baseline, "fail if a ratio has grown since this file was written")
      ->check(named());
  app.add_option("--baseline-factor", options->baseline_factor,
                 "fail if a ratio has grown by more than this factor and is now above 0.1")
      ->capture_default_str()
      ->check(number_in(1.0, 1e9));
  app.add_option("--write-baseline", options->new_baseline, "write the ratios of this run, if it passes")
      ->check(named());
  app.add_option("--least-judged", options->least_judged,
                 "share of a kernel's planned cases that must be judged; cases outside its declared limits "
                 "do not count")
      ->capture_default_str()
      ->check(number_in(0.0, 1.0));
  app.add_option(
         "--compiles", options->plan.compiles,
         "how often a kernel may be compiled if it is compiled anew for other sizes or settings: sizes "
         "of "
         "public models come first, and cases of other sizes are given these (0: as often as the plan asks; "
         "default: up to 24 times, within the first 210 s)")
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1000000}));
  add_commit_option(app, options->commit);
  app.add_option("--budget", options->budget,
                 "start no further case after this time: 90, 90s, 5m, 1.5h (0: no limit)")
      ->capture_default_str();
  app.add_option("--effort", options->plan.plan.effort,
                 "multiplies the time of the plan; from 10 on, the plan contains every triple of choices, "
                 "however long they take")
      ->capture_default_str()
      ->check(number_in(0.0, 1e4));
  app.add_option("--max-cases", options->plan.plan.max_cases,
                 "run at most this many cases, evenly spread over the plan (0: all)")
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1} << 40));
  app.add_option("--seed", options->plan.plan.seed, "seed of the random cases")
      ->check(seed_number())
      ->capture_default_str();
  app.add_option("--device", options->plan.plan.device, "only kernels of this device: cpu or cuda")
      ->check(named());
  add_names(app, "--system", options->plan.plan.system,
            "only this system (repeatable; patterns with * and ?)");
  add_names(app, "--kernel", options->plan.plan.kernel, kKernelHelp);
  add_plugin_option(app, options->plugins);
  add_filter_options(app, options->filter);
  add_devices_option(app, options->devices);
  app.add_flag("--each-device", options->each_device, kEachDeviceHelp);
  app.add_option("--shard", options->shard, kShardHelp)->capture_default_str();
  app.add_flag("--list", options->list, "print the case lines without running them");
  app.add_flag(
      "--why", options->why,
      "with --list: name the list of the plan that each line comes from, and say once what that list "
      "adds and which faults it can find (with --json: the list and the reason of each line)");
  app.add_flag("--strict", options->plan.strict, kStrictHelp);
  app.add_flag(
      "--timings", options->timings,
      "end with a table of where the cases' time went: start, waiting, compile, tune, copy, kernel, passing, "
      "judge (samestate explain WORD)");
  app.add_flag("--fail-fast", options->fail_fast, "start no further case after the first failure");
  app.add_flag("--json", options->json, "print JSON instead of the summary; also with --list");
  app.add_option("--timeout", options->timeout, "a case that takes longer is a timeout (0: no limit)")
      ->capture_default_str();
  app.add_option("--threads", options->threads, "number of cases that run at once")
      ->capture_default_str()
      ->check(CLI::Range(1, 1024));
  return [options] { return run_gate(*options); };
}

}  // namespace samestate::cli
