#include <fmt/chrono.h>
#include <fmt/format.h>

#include <ctime>
#include <memory>
#include <random>
#include <set>

#include "cli/case_sizes.h"
#include "cli/commands.h"
#include "cli/corpus.h"
#include "cli/coverage_table.h"
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
#include "fuzz/search/checkpoint.h"
#include "fuzz/search/search.h"
#include "fuzz/search/shrink.h"
#include "harness/records/hash.h"
#include "reports/records/failure_groups.h"
#include "reports/records/json_lines.h"
#include "reports/records/judged_share.h"
#include "reports/records/summary.h"
#include "reports/text/gate_json.h"
#include "samestate_version.h"

namespace samestate::cli {
namespace {

/// How many distinct failures are shrunk. A kernel that is wrong throughout has failures of many kinds.
constexpr std::size_t kShrunkFailures = 12;

struct FuzzOptions {
  SearchOptions search;
  FilterOptions filter;
  bool list = false, json = false, fail_fast = false, strict = false;
  std::vector<std::string> plugins;
  std::string budget = "5m", shrink_budget = "30s", timeout = "60s", shard = "0/1", jsonl, corpus, commit;
  std::uint64_t seed = 0;
  bool has_seed = false;
  std::string devices;
};

/// Returns one failure of each kind, the one with the least index: kernel, form, law and likely cause tell
/// kinds apart.
std::vector<Found> distinct(const std::vector<Found>& failures) {
  std::set<std::string> seen;
  std::vector<Found> out;
  for (const Found& found : failures) {
    const std::string key = found.record.kernel + " " + found.record.form + " " + found.record.law + " " +
                            likely_cause(found.record.judgement);
    if (seen.insert(key).second) out.push_back(found);
  }
  return out;
}

/// Returns the command that repeats the verdict.
std::string command_of(const FuzzOptions& options, Record record) {
  if (record.judgement.verdict == Verdict::timeout) record.options += " --timeout " + options.timeout;
  if (is_failure(record.judgement.verdict))
    record.options += device_options(record, options.search.workers.devices);
  return repro_command(record);
}

/// Everything but the result goes to stderr if a program reads the result.
std::FILE* aside(const FuzzOptions& options) { return options.json ? stderr : stdout; }

void append(const FuzzOptions& options, const Found& found, const Shrunk& small) {
  // The user must ask for it: a search does not write into a tree that it was not given.
  if (options.corpus.empty()) return;
  const std::string& folder = options.corpus;
  const std::string comment = fmt::format(
      "{:%Y-%m-%d} {} ({}) of {}, found by fuzz --seed {:#x} as case {}{}", fmt::gmtime(std::time(nullptr)),
      name_of(small.finding.judgement.verdict), kind_of(small.finding.judgement), found.record.kernel,
      options.search.seed, found.index, small.runs > 0 ? "" : ", not shrunk");
  if (append_to_corpus(folder, comment, small.smallest)) {
    fmt::print(aside(options), "    kept in {}/{}.txt\n", folder, small.smallest.system);
  }
}

/// Investigates a failure that its case alone does not show: the cases that ran before it in its process
/// cause it, or it is flaky.
Verdict look_before(const KernelTable& table, const FuzzOptions& options, const SearchResult& result,
                    const Found& found) {
  const CaseSource source(table, options.search.filter, options.search.seed);
  std::vector<Case> before;
  for (const std::int64_t index : result.history.before(found.task)) before.push_back(source.draw(index));
  const std::size_t count = before.size();
  Record record = found.record;
  ReplayOptions how{options.search.workers.timeout, seconds_of("--shrink-budget", options.shrink_budget)};
  if (const Devices* devices = options.search.workers.devices) how.gpus = devices->visible_as(record.gpu);
  const Replayed again = replay(std::move(before), found.c, runner_of(table), how);
  if (again.repeated) {
    for (const Case& c : again.after) record.after.push_back(format_case(c));
    record.judgement = again.result.judgement;
  } else {
    record.judgement.verdict = Verdict::flaky;
    record.judgement.reason = fmt::format(
        "failed in the search, but passes alone and after the {} cases that ran before it", count);
  }
  std::FILE* const out = aside(options);
  fmt::print(out, "  {}: {}\n", record.kernel, judgement_line(record.judgement));
  if (again.repeated) {
    fmt::print(out,
               "    only after {} other case(s) in the same process, of {} that ran before it: the kernel "
               "keeps something "
               "from one call to the next\n",
               again.after.size(), count);
  }
  fmt::print(out, "    {}\n", command_of(options, record));
  return record.judgement.verdict;
}

/// Shrinks one failure of each kind into `shrunk`, and returns how many of each verdict there are then.
VerdictCounts shrink_all(const KernelTable& table, const FuzzOptions& options, const SearchResult& result,
                         std::vector<Record>& shrunk) {
  VerdictCounts verdicts;
  std::set<std::string> printed;
  const std::vector<Found> kinds = distinct(result.failures);
  std::FILE* const out = aside(options);
  fmt::print(out, "failures: {}, {}\n", counted(std::ssize(result.failures), "case"),
             counted(std::ssize(kinds), "kind"));
  WorkerOptions one = options.search.workers;
  one.workers = 1;
  Workers worker(runner_of(table), one);
  const auto as_it_is = [&](const Found& found) {
    ++verdicts[found.record.judgement.verdict];
    fmt::print(out, "  {}: {}\n    not shrunk: {}\n", found.record.kernel,
               judgement_line(found.record.judgement), command_of(options, found.record));
    if (!interrupted()) return;
    // An interrupt ends the shrinking, but keeps what was found.
    shrunk.push_back(found.record);
    append(options, found, {found.c, {found.record.judgement, found.record.seconds, 0}});
  };
  for (std::size_t i = 0; i < kinds.size(); ++i) {
    const Found& found = kinds[i];
    if (i >= kShrunkFailures || interrupted()) {
      as_it_is(found);
      continue;
    }
    ShrinkOptions how;
    how.stop = interrupted;
    // The worker must use the device on which the failure was found, because another device may be sound.
    how.fresh = [&](const Case& c) { return worker.run_fresh(c, found.record.gpu); };
    const auto run = [&](const Case& c) { return worker.run_one(c, found.record.gpu); };
    how.budget = seconds_of("--shrink-budget", options.shrink_budget);
    Shrunk small;
    try {
      small = shrink(found.c, run, how);
    } catch (const NothingToShrink&) {
      if (interrupted()) {
        as_it_is(found);
      } else {
        ++verdicts[look_before(table, options, result, found)];
      }
      continue;
    }
    ++verdicts[small.finding.judgement.verdict];
    if (!printed.insert(format_case(small.smallest)).second) continue;
    shrunk.push_back(record_of(small.smallest, table, small.finding));
    const Resolved smallest(small.smallest);
    fmt::print(out, "  {}: {}\n    {}\n    sizes {}\n    {} elements of {:.0f}, {} runs, {:.1f} s{}\n",
               found.record.kernel, judgement_line(small.finding.judgement),
               command_of(options, shrunk.back()), sizes_in_full(smallest), size_of_case(smallest),
               size_of_case(Resolved(found.c)), small.runs, small.seconds,
               small.complete ? "" : "; not finished");
    if (small.finding.judgement.verdict != Verdict::flaky) append(options, found, small);
  }
  return verdicts;
}

void print_result(const SearchResult& result, const FuzzOptions& of_run) {
  const SearchOptions& options = of_run.search;
  const auto of = [&](Verdict v) {
    const auto at = result.counts.find(v);
    return at == result.counts.end() ? 0 : at->second;
  };
  std::string counts;
  for (const auto& [verdict, count] : result.counts) {
    counts += fmt::format("{}{} {}", counts.empty() ? "" : ", ", name_of(verdict), count);
  }
  const auto here = static_cast<double>(result.cases - result.replayed);
  std::FILE* const out = aside(of_run);
  fmt::print(out, "{}, {} judged: {}\n", counted(result.cases, "case"), of(Verdict::pass) + of(Verdict::fail),
             counts);
  fmt::print(out, "seed {:#x}, shard {}/{}: {:.0f} cases in {:.1f} s on {} worker(s){}, {:.0f} cases/s",
             options.seed, options.shard, options.shards, here, result.seconds, options.workers.workers,
             ranks_text(), here / std::max(result.seconds, 1e-9));
  fmt::print(out, "{}\n",
             result.replayed > 0 ? fmt::format("; {} from the checkpoint", result.replayed) : "");
  if (!result.worst.empty()) fmt::print(out, "largest ratios that passed, attained bounds apart\n");
  for (const Found& found : result.worst) {
    fmt::print(out, "  {:<8.3g}  {}\n", found.record.judgement.ratio, command_of(of_run, found.record));
  }
}

/// Returns which part of which search this is, for the run line of its file.
RunPart part_of(const FuzzOptions& options, const CaseSource& source) {
  const SearchOptions& search = options.search;
  RunPart part{"fuzz", search.shard, search.shards, 0, search.max_cases, source.fingerprint(), {}};
  if (search.max_cases > 0)
    part.cases = (search.max_cases - search.shard + search.shards - 1) / search.shards;
  const auto put = [&](const char* name, const std::string& value) {
    if (!value.empty()) part.options[name] = value;
  };
  put("seed", fmt::format("{:#x}", search.seed));
  put("system", search.filter.system);
  put("device", search.filter.device);
  put("kernel", search.filter.kernel);
  put("where", search.filter.cases.text());
  put("timeout", options.timeout);
  put("strict", options.strict ? "on" : "");
  return part;
}

void complete(FuzzOptions& options) {
  SearchOptions& search = options.search;
  search.budget = seconds_of("--budget", options.budget);
  search.workers.timeout = seconds_of("--timeout", options.timeout);
  (void)seconds_of("--shrink-budget", options.shrink_budget);
  if (search.workers.timeout <= 0) throw Error("--timeout 0: a case needs some time; give a number above 0");
  const Shard shard = shard_of(options.shard);
  search.shard = shard.index;
  search.shards = shard.count;
  search.filter.cases = filter_of(options.filter);
  search.build = SAMESTATE_VERSION;
  if (search.resume && !search.checkpoint.empty() && !is_begun_checkpoint(search.checkpoint)) {
    fmt::print(stderr, "samestate: {} contains no finished case, so the search begins anew\n",
               search.checkpoint.string());
    search.resume = false;
  }
  if (options.has_seed) {
    search.seed = options.seed;
  } else if (search.resume && !search.checkpoint.empty()) {
    search.seed = checkpoint_seed(search.checkpoint);
  } else {
    std::random_device device;
    search.seed = (static_cast<std::uint64_t>(device()) << 32) ^ device();
  }
  if (!options.corpus.empty() && std::filesystem::exists(options.corpus)) (void)read_corpus(options.corpus);
}

/// Prints the cases of the shard, up to --max-cases.
int print_plan(const KernelTable& table, const FuzzOptions& options) {
  const SearchOptions& search = options.search;
  if (search.max_cases == 0)
    throw Error("--list: a search has no end of its own; limit the list with --max-cases N");
  const CaseSource source(table, search.filter, search.seed);
  std::vector<std::string> lines;
  for (std::int64_t i = search.shard; i < search.max_cases; i += search.shards)
    lines.push_back(format_case(source.draw(i)));
  fmt::print("{}", listed(lines, options.json));
  return kPass;
}

/// Says why the search ended before its cases or its time did; empty if it did not.
std::string why_ended(const SearchResult& result, const RunLines& lines, bool devices_lost) {
  for (const std::string& lost : {result.lost, lines.lost()}) {
    if (!lost.empty())
      return fmt::format(
          "{}: the search ended there, and what the file contains is complete; go on with --checkpoint and "
          "--resume.",
          lost);
  }
  if (devices_lost)
    return "Every device was lost, which ended the search; go on with --checkpoint and --resume.";
  return interrupted() ? "Interrupted." : "";
}

int run_fuzz(FuzzOptions options) {
  complete(options);
  SearchOptions& search = options.search;
  const SubjectLog log(options.plugins);
  const KernelTable table = kernel_table(options.plugins, search.filter.cases, options.strict);
  search.filter.kernel = kernels_asked(search.filter.kernel, table, search.filter.system,
                                       search.filter.device, search.filter.cases);
  if (const std::string plugins = plugin_identities(options.plugins); !plugins.empty())
    search.build += fmt::format("+{:016x}", hash_of(plugins));
  if (search.filter.device.empty() && search.filter.kernel.empty() && options.plugins.empty() &&
      accelerator().name.empty()) {
    search.filter.device = "cpu";
  }
  if (options.list && !serves()) return print_plan(table, options);
  std::unique_ptr<Devices> devices;
  if (search.filter.device != "cpu" || !options.devices.empty())
    devices =
        devices_of(options.devices, table,
                   wanted_kernels(table, search.filter.system, search.filter.device, search.filter.kernel));
  search.workers.devices = devices.get();
  if (serves()) return serve(options.plugins, job_runner(runner_of(table)), search.workers.devices);
  // This is checked first, because the end of a long search is too late to learn that nothing can be kept. The folder
  // of the corpus is only created when something is found.
  if (!options.corpus.empty()) require_writable(std::filesystem::path(options.corpus) / "found.txt");
  if (!search.checkpoint.empty()) require_writable(search.checkpoint);
  search.ranks = hand_out(options.plugins);
  require_different({{"--jsonl", options.jsonl}, {"--checkpoint", search.checkpoint.string()}});
  RunLines lines;
  if (!options.jsonl.empty()) {
    Run run = this_run(search.filter.device == "cpu" ? Accelerator() : accelerator(), options.plugins,
                       options.commit);
    run.gpus = texts_of(search.workers.devices);
    run.part = part_of(options, CaseSource(table, search.filter, search.seed));
    lines = RunLines(options.jsonl, run,
                     search.resume ? JsonLinesWriter::Mode::append : JsonLinesWriter::Mode::replace);
  }
  if (!search.checkpoint.empty() && !search.resume) make_parent_folder(search.checkpoint);
  note_interrupts();

  SearchObserver observer;
  const auto progress = std::make_unique<Progress>(
      search.max_cases > 0 ? (search.max_cases - search.shard + search.shards - 1) / search.shards : 0,
      search.budget);
  observer.started = [&](const Task& task) { lines.start(planned_record(task.c, table), task.index); };
  SearchOutcome outcome;
  bool failed = false;
  observer.finished = [&](const Task& task, const Record& record, bool replayed) {
    add_to(outcome.shares, record);
    failed = failed || is_failure(record.judgement.verdict);
    progress->step(record.judgement.ratio, is_failure(record.judgement.verdict));
    if (!replayed) lines.end(task.index, record);
  };
  const SearchResult result = samestate::search(table, search, observer, [&] {
    const bool no_device = devices && devices->left() == 0;
    return interrupted() || (options.fail_fast && failed) || !lines.lost().empty() || no_device;
  });
  progress->clear();
  print_result(result, options);
  std::vector<Record> shrunk;
  if (!result.failures.empty()) outcome.kinds = shrink_all(table, options, result, shrunk);
  fmt::print(aside(options), "{}", coverage_table(result.coverage));
  RunEnd end;
  end.seconds = result.elapsed;
  end.seed = fmt::format("{:#x}", search.seed);
  end.not_complete = why_ended(result, lines, devices && devices->left() == 0);
  if (!end.not_complete.empty()) fmt::print(aside(options), "{}\n", end.not_complete);
  outcome.cases = result.counts;
  outcome.coverage = &result.coverage;
  outcome.filtered = !search.filter.cases.empty();
  outcome.interrupted = end.interrupted = !end.not_complete.empty();
  end.kinds = by_name(outcome.kinds);
  end.exit = judge_search(outcome, end.remarks);
  for (const std::string& remark : end.remarks) fmt::print(stderr, "samestate: {}\n", remark);
  lines.finish(end);
  // If a file could not be written, the result is not a pass, but failures that were found still count.
  const bool lost = !result.lost.empty() || !lines.lost().empty();
  if (lost && (end.exit == kPass || end.exit == kVacuous)) end.exit = kUsage;
  if (options.json) fmt::print("{}", search_json(result.counts, shrunk, end));
  return end.exit;
}

}  // namespace

Command add_fuzz(CLI::App& app) {
  auto options = std::make_shared<FuzzOptions>();
  SearchOptions& search = options->search;
  search.workers.workers = default_threads();
  app.footer(
      "Case i of a seed is the same on every machine and for any number of workers. A crash or a "
      "hang of a kernel is the\n"
      "verdict of its case. One failure of each kind is shrunk to one line, and kept in the folder "
      "that --corpus names.\n"
      "If the cases of a system never reach something within 4000 judged ones, the exit code is "
      "3.\n"
      "\n"
      "  samestate fuzz --budget 5m\n"
      "  samestate fuzz --budget 8h --seed 7 --shard 0/4 --checkpoint night.txt     after a crash: "
      "--resume\n"
      "                                          `samestate merge` joins the shards' files, "
      "checkpoints and corpora\n"
      "  samestate fuzz --plugin ./mine.so --kernel mine.gated_delta_rule.chunked --corpus "
      "./corpus\n"
      "  samestate fuzz --contract bf16 --where 'T=64..4096' --exclude layout=far\n"
      "\n" +
      filter_help());
  app.add_option("--budget", options->budget,
                 "start no further case after this time: 90, 90s, 5m, 1.5h (0: no limit)")
      ->capture_default_str();
  app.add_option("--max-cases", search.max_cases, "cases 0..N-1 of the seed, over all shards (0: no limit)")
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1} << 40));
  auto* seed =
      app.add_option("--seed", options->seed, "seed of the cases (default: a new one, printed at the end)")
          ->check(seed_number());
  app.add_option("--shard", options->shard, "I/N: only the cases I, I + N, I + 2N, ...")
      ->capture_default_str();
  add_names(app, "--system", search.filter.system, "only this system (repeatable; patterns with * and ?)");
  add_names(app, "--kernel", search.filter.kernel, kKernelHelp);
  app.add_option("--device", search.filter.device, "only kernels of this device: cpu or cuda")
      ->check(named());
  add_devices_option(app, options->devices);
  add_plugin_option(app, options->plugins);
  add_filter_options(app, options->filter);
  app.add_flag("--list", options->list, "print the case lines up to --max-cases without running them");
  app.add_flag("--strict", options->strict, kStrictHelp);
  app.add_flag("--fail-fast", options->fail_fast, "start no further case after the first failure");
  app.add_flag("--json", options->json, "print JSON instead of the summary; also with --list");
  app.add_option("--threads", search.workers.workers, "worker processes")
      ->capture_default_str()
      ->check(CLI::Range(1, 1024));
  app.add_option("--timeout", options->timeout, "a case that takes longer is a timeout")
      ->capture_default_str();
  app.add_option("--checkpoint", search.checkpoint, "append every finished case to this file")
      ->check(named());
  app.add_flag("--resume", search.resume,
               "continue the search in the checkpoint, or start one if there is none");
  app.add_option("--jsonl", options->jsonl, "write every case as JSON Lines, flushed case by case")
      ->check(named());
  add_commit_option(app, options->commit);
  app.add_option("--corpus", options->corpus,
                 "append shrunk failures to this folder, which `gate --corpus` replays first")
      ->check(named());
  app.add_option("--shrink-budget", options->shrink_budget, "time to shrink one failure")
      ->capture_default_str();
  return [options, seed] {
    options->has_seed = seed->count() > 0;
    return run_fuzz(*options);
  };
}

}  // namespace samestate::cli
