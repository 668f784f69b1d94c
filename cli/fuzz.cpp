#include <fmt/chrono.h>
#include <fmt/format.h>

#include <ctime>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <thread>

#include "cli/commands.h"
#include "cli/corpus.h"
#include "cli/coverage_table.h"
#include "cli/duration.h"
#include "cli/interrupt.h"
#include "cli/options.h"
#include "cli/progress.h"
#include "cli/table.h"
#include "fuzz/search/checkpoint.h"
#include "fuzz/search/search.h"
#include "fuzz/shrink.h"
#include "reports/records/json_lines.h"
#include "reports/records/judged_share.h"
#include "reports/records/summary.h"
#include "samestate_kernel_sources.h"
#include "samestate_version.h"

namespace samestate::cli {
namespace {

/// Distinct failures that are shrunk; a kernel that is wrong throughout has one in every corner.
constexpr std::size_t kShrunkFailures = 12;

struct FuzzOptions {
  SearchOptions search;
  std::vector<std::string> plugins;
  std::string budget = "5m", shrink_budget = "30s", timeout = "60s", shard = "0/1", jsonl, corpus;
  std::uint64_t seed = 0;
  bool has_seed = false;
};

void read_shard(const std::string& text, SearchOptions& search) {
  const std::size_t slash = text.find('/');
  try {
    std::size_t used[2] = {0, 0};
    const std::string parts[2] = {text.substr(0, slash), slash == text.npos ? "" : text.substr(slash + 1)};
    search.shard = std::stoll(parts[0], &used[0]);
    search.shards = std::stoll(parts[1], &used[1]);
    const bool whole = used[0] == parts[0].size() && used[1] == parts[1].size();
    if (whole && search.shard >= 0 && search.shard < search.shards && search.shards <= kMostShards) return;
  } catch (const std::exception&) {
  }
  throw Error(fmt::format("--shard {}: write I/N with N in 1..{} and I in 0..N-1", text, kMostShards));
}

/// One of each kind of failure, that of the least index: form, gate, law and kernel tell them apart.
std::vector<Found> distinct(const std::vector<Found>& failures) {
  std::set<std::string> seen;
  std::vector<Found> out;
  for (const Found& found : failures) {
    const Judgement& j = found.record.judgement;
    const std::string key = found.record.kernel + " " + found.record.form + " " + found.record.law + " " +
                            std::string(name_of(j.verdict)) + " " + kind_of(j);
    if (seen.insert(key).second) out.push_back(found);
  }
  return out;
}

/// What `repro` needs beside the line to give the same verdict.
std::string repro_options(const FuzzOptions& options, const Judgement& judgement) {
  std::string text = plugin_options(options.plugins);
  if (judgement.verdict == Verdict::timeout) text += " --timeout " + options.timeout;
  return text;
}

void append(const FuzzOptions& options, const Found& found, const Shrunk& small) {
  const bool named = !options.corpus.empty();
  // A plugin's failures are its owner's: they go where the owner says.
  if (!named && (!options.plugins.empty() || !std::filesystem::is_directory(standard_corpus()))) return;
  const std::string folder = named ? options.corpus : standard_corpus();
  const std::string comment =
      fmt::format("{:%Y-%m-%d} {} ({}) of {}, found by fuzz --seed {:#x} as case {}",
                  fmt::gmtime(std::time(nullptr)), name_of(small.finding.judgement.verdict),
                  kind_of(small.finding.judgement), found.record.kernel, options.search.seed, found.index);
  if (append_to_corpus(folder, comment, small.smallest)) {
    fmt::print("    kept in {}/{}.txt\n", folder, small.smallest.system);
  }
}

/// A failure that its case alone does not show: behind the cases that ran before it in its process, or flaky.
Verdict look_before(const KernelTable& table, const FuzzOptions& options, const SearchResult& result,
                    const Found& found) {
  const CaseSource source(table, options.search.filter, options.search.seed);
  std::vector<Case> before;
  for (const std::int64_t index : result.history.before(found.task)) before.push_back(source.draw(index));
  const std::size_t count = before.size();
  Record record = found.record;
  const Replayed again =
      replay(std::move(before), found.c, runner_of(table),
             {options.search.workers.timeout, seconds_of("--shrink-budget", options.shrink_budget)});
  if (again.repeated) {
    for (const Case& c : again.after) record.after.push_back(format_case(c));
    record.judgement = again.result.judgement;
  } else {
    record.judgement.verdict = Verdict::flaky;
    record.judgement.reason = fmt::format(
        "failed in the search, and passes alone and behind the {} cases that ran before it", count);
  }
  fmt::print("  {}: {}\n", record.kernel, judgement_line(record.judgement));
  if (again.repeated) {
    fmt::print(
        "    only after {} other case(s) in one process, of the {} before it: the kernel keeps something "
        "from call to call\n",
        again.after.size(), count);
  }
  fmt::print("    {}\n", repro_command(record, repro_options(options, record.judgement)));
  return record.judgement.verdict;
}

/// Shrinks one of each kind of failure; how many of each verdict they are then.
std::map<Verdict, std::int64_t> shrink_all(const KernelTable& table, const FuzzOptions& options,
                                           const SearchResult& result) {
  std::map<Verdict, std::int64_t> verdicts;
  std::set<std::string> printed;
  const std::vector<Found> kinds = distinct(result.failures);
  fmt::print("failures: {} cases, {} kind(s)\n", result.failures.size(), kinds.size());
  WorkerOptions one = options.search.workers;
  one.workers = 1;
  Workers worker(runner_of(table), one);
  const auto run = [&](const Case& c) { return worker.run_one(c); };
  for (std::size_t i = 0; i < kinds.size(); ++i) {
    const Found& found = kinds[i];
    if (i >= kShrunkFailures) {
      ++verdicts[found.record.judgement.verdict];
      fmt::print("  {}: {}\n    not shrunk: samestate repro{} '{}'\n", found.record.kernel,
                 judgement_line(found.record.judgement), repro_options(options, found.record.judgement),
                 found.record.line);
      continue;
    }
    ShrinkOptions how;
    how.fresh = [&](const Case& c) { return worker.run_fresh(c); };
    how.budget = seconds_of("--shrink-budget", options.shrink_budget);
    Shrunk small;
    try {
      small = shrink(found.c, run, how);
    } catch (const NothingToShrink&) {
      ++verdicts[look_before(table, options, result, found)];
      continue;
    }
    ++verdicts[small.finding.judgement.verdict];
    if (!printed.insert(format_case(small.smallest)).second) continue;
    fmt::print("  {}: {}\n    samestate repro{} '{}'\n    {} elements of {:.0f}, {} runs, {:.1f} s{}\n",
               found.record.kernel, judgement_line(small.finding.judgement),
               repro_options(options, small.finding.judgement), format_case(small.smallest),
               size_of_case(Resolved(small.smallest)), size_of_case(Resolved(found.c)), small.runs,
               small.seconds, small.complete ? "" : "; not finished");
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
  fmt::print("{} cases, {} judged: {}\n", result.cases, of(Verdict::pass) + of(Verdict::fail), counts);
  fmt::print("seed {:#x}, shard {}/{}: {:.0f} cases in {:.1f} s on {} worker(s), {:.0f} cases/s",
             options.seed, options.shard, options.shards, here, result.seconds, options.workers.workers,
             here / std::max(result.seconds, 1e-9));
  fmt::print("{}\n", result.replayed > 0 ? fmt::format("; {} from the checkpoint", result.replayed) : "");
  if (!result.worst.empty()) fmt::print("largest ratios that passed\n");
  for (const Found& found : result.worst) {
    fmt::print("  {:<8.3g}  samestate repro{} '{}'\n", found.record.judgement.ratio,
               repro_options(of_run, found.record.judgement), found.record.line);
  }
}

/// Share of a kernel's cases inside its limits that a search must have judged.
constexpr double kLeastJudged = 0.5;

int exit_of(const SearchResult& result, std::map<Verdict, std::int64_t> verdicts,
            const std::map<std::string, JudgedShare>& shares) {
  if (verdicts[Verdict::crash] + verdicts[Verdict::timeout] > 0) return kCrash;
  if (verdicts[Verdict::fail] > 0) return kFail;
  if (verdicts[Verdict::flaky] > 0) return kFlaky;
  const std::vector<CoverageRow> missing = result.coverage.missing();
  for (const CoverageRow& row : missing) {
    fmt::print(stderr, "samestate: {}: {} {} was never judged in {} cases\n", row.system, row.dimension,
               row.value, result.coverage.judged(row.system));
  }
  const std::vector<std::string> few = too_little(shares, kLeastJudged);
  for (const std::string& sentence : few) fmt::print(stderr, "samestate: {}\n", sentence);
  if (!missing.empty() || (!few.empty() && result.counts.contains(Verdict::pass))) return kVacuous;
  const auto of = [&](Verdict v) { return result.counts.contains(v) ? result.counts.at(v) : 0; };
  if (of(Verdict::pass) > 0) return kPass;
  return of(Verdict::vacuous) > 0 || result.cases == 0 ? kVacuous : kNothingRan;
}

void complete(FuzzOptions& options) {
  SearchOptions& search = options.search;
  search.budget = seconds_of("--budget", options.budget);
  search.workers.timeout = seconds_of("--timeout", options.timeout);
  (void)seconds_of("--shrink-budget", options.shrink_budget);
  if (search.workers.timeout <= 0) throw Error("--timeout 0: a case needs some time");
  read_shard(options.shard, search);
  search.build = SAMESTATE_VERSION;
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

int run_fuzz(FuzzOptions options) {
  complete(options);
  const KernelTable table = kernel_table(options.plugins);
  SearchOptions& search = options.search;
  if (search.filter.device.empty() && search.filter.kernel.empty() && options.plugins.empty() &&
      accelerator().name.empty()) {
    search.filter.device = "cpu";
  }
  std::unique_ptr<JsonLinesWriter> lines;
  const Run run{SAMESTATE_VERSION, "", search.filter.device, "", "", SAMESTATE_CUDA_SOURCES};
  if (!options.jsonl.empty()) {
    lines = std::make_unique<JsonLinesWriter>(
        options.jsonl, run, search.resume ? JsonLinesWriter::Mode::append : JsonLinesWriter::Mode::replace);
  }
  note_interrupts();

  std::map<std::int64_t, std::int64_t> numbers;
  SearchObserver observer;
  const auto progress = std::make_unique<Progress>(
      search.max_cases > 0 ? (search.max_cases - search.shard + search.shards - 1) / search.shards : 0,
      search.budget);
  observer.started = [&](const Task& task) {
    if (lines) numbers[task.index] = lines->start(planned_record(task.c, table));
  };
  std::map<std::string, JudgedShare> shares;
  observer.finished = [&](const Task& task, const Record& record, bool replayed) {
    add_to(shares, record);
    progress->step(record.judgement.ratio, is_failure(record.judgement.verdict));
    if (!lines || replayed) return;
    lines->end(numbers.at(task.index), record);
    numbers.erase(task.index);
  };
  const SearchResult result = samestate::search(table, search, observer, interrupted);
  progress->clear();
  print_result(result, options);
  std::map<Verdict, std::int64_t> verdicts;
  if (!result.failures.empty()) verdicts = shrink_all(table, options, result);
  fmt::print("{}", coverage_table(result.coverage));
  if (interrupted()) fmt::print("Interrupted.\n");
  return exit_of(result, verdicts, shares);
}

}  // namespace

Command add_fuzz(CLI::App& app) {
  auto options = std::make_shared<FuzzOptions>();
  SearchOptions& search = options->search;
  search.workers.workers = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  app.footer(
      "Case i of a seed is the same on every machine and for any number of workers. A crash or a hang of a "
      "kernel "
      "is a verdict\n"
      "of its case. One failure of each kind is shrunk to one line and kept in the corpus, which the gate "
      "replays "
      "first.\n"
      "What a system's cases never reached, from 4000 judged ones on, is exit 3.\n\n"
      "  samestate fuzz --budget 5m\n"
      "  samestate fuzz --budget 8h --seed 7 --shard 0/4 --checkpoint night.txt     after a crash: --resume\n"
      "  samestate fuzz --plugin ./mine.so --kernel mine.gated_delta_rule.chunked --corpus ./corpus");
  app.add_option("--budget", options->budget,
                 "start no case after this time: 90, 90s, 5m, 1.5h (0: no limit)")
      ->capture_default_str();
  app.add_option("--max-cases", search.max_cases, "cases 0..N-1 of the seed, over all shards (0: no limit)")
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1} << 40));
  auto* seed =
      app.add_option("--seed", options->seed, "of the cases; default: a fresh one, printed at the end")
          ->check(seed_number());
  app.add_option("--shard", options->shard, "I/N: only the cases I, I + N, I + 2N, ...")
      ->capture_default_str();
  app.add_option("--system", search.filter.system, "only this system")->check(named());
  app.add_option("--kernel", search.filter.kernel, "only this kernel")->check(named());
  app.add_option("--device", search.filter.device, "only kernels of this device: cpu or cuda")
      ->check(named());
  app.add_option("--plugin", options->plugins, "load kernels from a shared library (repeatable)")
      ->check(named());
  app.add_option("--threads", search.workers.workers, "worker processes")
      ->capture_default_str()
      ->check(CLI::Range(1, 1024));
  app.add_option("--timeout", options->timeout, "a case that takes longer is a timeout")
      ->capture_default_str();
  app.add_option("--checkpoint", search.checkpoint, "append every finished case to this file")
      ->check(named());
  app.add_flag("--resume", search.resume, "go on with the checkpoint");
  app.add_option("--jsonl", options->jsonl, "write every case as JSON Lines, flushed case by case")
      ->check(named());
  app.add_option("--corpus", options->corpus, "append shrunk failures to this folder; default: fuzz/corpus")
      ->check(named());
  app.add_option("--shrink-budget", options->shrink_budget, "time to shrink one failure")
      ->capture_default_str();
  return [options, seed] {
    options->has_seed = seed->count() > 0;
    return run_fuzz(*options);
  };
}

}  // namespace samestate::cli
