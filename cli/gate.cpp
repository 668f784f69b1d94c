#include <fmt/format.h>

#include <chrono>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <ranges>
#include <thread>

#include "cli/commands.h"
#include "cli/corpus.h"
#include "cli/duration.h"
#include "cli/explained.h"
#include "cli/filter.h"
#include "cli/interrupt.h"
#include "cli/options.h"
#include "cli/progress.h"
#include "cli/table.h"
#include "cli/terminal.h"
#include "fuzz/compiled_variants.h"
#include "fuzz/plan.h"
#include "fuzz/plan_coverage.h"
#include "fuzz/search/search.h"
#include "harness/cases/system.h"
#include "harness/processes/campaign.h"
#include "reference/error.h"
#include "reports/records/baseline.h"
#include "reports/records/failure_groups.h"
#include "reports/records/files.h"
#include "reports/records/json_lines.h"
#include "reports/records/judged_share.h"
#include "reports/records/summary.h"
#include "reports/text/gate_json.h"
#include "reports/text/junit.h"
#include "reports/text/markdown.h"
#include "reports/text/terminal.h"
#include "samestate_version.h"

namespace samestate::cli {
namespace {

/// Share of vacuous cases above which the gate says that it covered too little.
constexpr double kVacuousShare = 0.05;

/// Fewer cases than this have no share that says anything: one of 8 is 12 %.
constexpr double kLeastForAShare = 20.0;

/// Kinds of failures that are run again to say what they look like, and the seconds that one may take.
constexpr std::size_t kExplainedKinds = 5;
constexpr double kExplainSeconds = 12.0;

constexpr std::size_t kShownPairs = 3;

struct GateOptions {
  PlanOptions plan;
  FilterOptions filter;
  std::string shard = "0/1";
  bool list = false, json = false, fail_fast = false, strict = false;
  std::vector<std::string> plugins;
  std::string jsonl, junit, markdown, coverage, baseline, new_baseline, timeout = "10m", budget = "0";
  std::string corpus = standard_corpus(), commit;
  double baseline_factor = 2.0;
  double least_judged = 0.5;
  std::int64_t variants = 8;
  int threads = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
};

/// What is not the result goes to stderr where the result is read by a program.
std::FILE* aside(const GateOptions& options) { return options.json ? stderr : stdout; }

/// Why cases were left; empty: none was.
std::string left_of(const GateOptions& options, const Summary& summary, const CampaignResult& result) {
  if (result.not_started + result.run == 0 && interrupted())
    return "Interrupted while the cases were planned: none was run.";
  if (result.not_started == 0) return "";
  const char* why = interrupted() ? "Interrupted before"
                    : options.fail_fast && !summary.failures.empty()
                        ? "A failure ended the run (--fail-fast) before"
                        : "The budget ended before";
  return fmt::format("{} {} of {} cases.", why, result.not_started, result.not_started + result.run);
}

/// The exit code; to `remarks`, why it is no pass where no case says so.
int verdict_of(const Summary& summary, const CampaignResult& result,
               const std::vector<std::string>& too_little, std::vector<std::string>& remarks) {
  if (summary.count(Verdict::crash) + summary.count(Verdict::timeout) > 0) return kCrash;
  if (summary.count(Verdict::fail) > 0) return kFail;
  if (summary.count(Verdict::flaky) > 0) return kFlaky;
  if (summary.judged == 0) {
    const bool some = summary.count(Verdict::vacuous) > 0 || result.not_started > 0 || interrupted();
    return some ? kVacuous : kNothingRan;
  }
  const double vacuous = static_cast<double>(summary.count(Verdict::vacuous) - summary.zeros);
  const double all = vacuous + static_cast<double>(summary.judged);
  if (all >= kLeastForAShare && vacuous > kVacuousShare * all) {
    remarks.push_back(fmt::format(
        "{:.0f} of {:.0f} cases that expect more than zeros were vacuous, more than {:.0f} %: too "
        "little was covered; another --contract or --regime, or more cases (--effort, --max-cases)",
        vacuous, all, 100 * kVacuousShare));
    return kVacuous;
  }
  constexpr std::size_t kShown = 3;
  for (const std::string& sentence : too_little | std::views::take(kShown)) remarks.push_back(sentence);
  if (too_little.size() > kShown)
    remarks.push_back(
        fmt::format("and so {} kernels more{}", too_little.size() - kShown,
                    result.not_started > 0 ? ", since the run ended before their cases began" : ""));
  return interrupted() || !too_little.empty() ? kVacuous : kPass;
}

/// The kernels of the cases that were not started, one name a case.
std::vector<std::string> not_started(const std::vector<Case>& cases, const KernelTable& table,
                                     const std::vector<bool>& started) {
  std::vector<std::string> kernels;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    if (!started[i]) kernels.push_back(planned_record(cases[i], table).kernel);
  }
  return kernels;
}

/// Every N-th: what costs much lies side by side in a plan, so that shards cost alike.
std::vector<Case> shard_cases(const std::vector<Case>& cases, const Shard& shard) {
  std::vector<Case> out;
  for (std::int64_t i = shard.index; i < std::ssize(cases); i += shard.count)
    out.push_back(cases[static_cast<std::size_t>(i)]);
  return out;
}

/// The corpus, then the plan; what a subject is not called for left out, which `left` counts, thinned together where the
/// cases are limited, then this shard of them.
Plan cases_of(const GateOptions& options, const KernelTable& table, const std::vector<CorpusEntry>& corpus,
              const Shard& shard, std::vector<LeftOut>& left) {
  PlanOptions all = options.plan;
  all.max_cases = 0;
  // A pipe that waits for the list, too, is told what it waits for.
  static constexpr std::chrono::seconds kPatience(30);
  all.planned = [last = std::chrono::steady_clock::now(), &options](std::size_t done,
                                                                    std::size_t of) mutable {
    const auto now = std::chrono::steady_clock::now();
    if (done == of || (done > 0 ? now - last < kPatience : options.plan.effort < kTriples)) return;
    last = now;
    fmt::print(
        stderr, "samestate: planning, {} of {} kernels{}\n", done, of,
        options.plan.effort < kTriples ? "" : "; every triple of choices takes up to minutes a kernel");
  };
  all.stop = interrupted;
  Plan plan = plan_of(table, all);  // checks the filters
  if (interrupted()) return {};
  std::vector<Case> cases = corpus_cases(corpus, table, options.plan);
  cases.insert(cases.end(), plan.cases.begin(), plan.cases.end());
  left = keep_callable(cases, table, options.variants);
  const std::int64_t total = plan.total = std::ssize(cases);
  if (total == 0 && !options.plan.filter.empty()) {
    throw Error("no case of the plan fits " + options.plan.filter.text() +
                ": `samestate gate --list` with fewer conditions shows what there is");
  }
  const std::int64_t most = options.plan.max_cases;
  std::vector<Case> kept;
  for (std::int64_t i = 0; i < std::min(most, total); ++i)
    kept.push_back(cases[static_cast<std::size_t>(i * total / most)]);
  if (most > 0 && total > most) cases = std::move(kept);
  plan.cases = shard_cases(cases, shard);
  return plan;
}

/// Whether the plan is run as it is made, whose pairs are then owed.
bool is_whole(const GateOptions& options) {
  return options.plan.max_cases == 0 && options.plan.filter.empty() && options.plan.effort >= 1 &&
         options.shard == "0/1";
}

PlanCoverage judged_of(const Plan& plan, const std::map<std::size_t, Record>& done) {
  PlanCoverage coverage(plan);
  for (const auto& [i, record] : done) {
    if (is_judged(record.judgement.verdict)) coverage.add(plan.cases[i], record.kernel);
  }
  return coverage;
}

/// Of the pairs that a whole plan is made to meet, what its judged cases met; one that was cut says nothing of it.
std::string met_by(const GateOptions& options, const Plan& plan, const std::map<std::size_t, Record>& done) {
  if (plan.cases.empty()) return "";
  if (options.coverage.empty() && (options.plan.max_cases > 0 || !options.plan.filter.empty())) return "";
  const PlanCoverage coverage = judged_of(plan, done);
  if (!options.coverage.empty()) write_atomically(options.coverage, coverage.json() + "\n");
  std::string text = coverage.text() + "\n";
  const bool whole = is_whole(options) && done.size() == plan.cases.size();
  for (const std::string& pair : whole ? coverage.missing(kShownPairs) : std::vector<std::string>())
    text += "  not judged with " + pair + "\n";
  return text;
}

/// Says of the example of each kind of failure what it looks like.
void explain_kinds(std::vector<Record>& records, const KernelTable& table) {
  std::size_t explained = 0;
  for (const FailureGroup& group : failure_groups(records)) {
    Record& example = records[group.example];
    if (example.judgement.verdict != Verdict::fail) continue;
    if (explained++ == kExplainedKinds || interrupted()) return;
    example.looks_like = looks_like(example, table, kExplainSeconds);
  }
}

/// What came of a comparison with a baseline.
struct Growth {
  std::string text;
  std::int64_t compared = 0;
};

/// Makes failures of the records whose ratio has grown, so that every report shows them. A case counts only
/// where it is deterministic: run twice more, its ratio is the same to the last bit.
Growth mark_grown(const Baseline& baseline, const GateOptions& options, const KernelTable& table,
                  std::vector<Record>& records) {
  const BaselineReport report = compare_with(baseline, records, options.baseline_factor);
  Workers again([&](const Case& c) { return case_result(run_case(c, table)); },
                {1, seconds_of("--timeout", options.timeout)});
  const auto ratio_of = [&](const Case& c) { return again.run_one(c).judgement.ratio; };
  Growth out{"", report.compared};
  std::int64_t grown = 0;
  for (const Regression& r : report.grown) {
    Record& record = records[r.record];
    const Case c = parse_case(record.line);
    const bool deterministic = ratio_of(c) == r.now && ratio_of(c) == r.now;
    out.text +=
        fmt::format("  ratio {:.4g}, was {:.4g}{}: {}\n", r.now, r.before,
                    deterministic ? "" : " (not deterministic: does not count)", repro_command(record));
    if (!deterministic) continue;
    ++grown;
    record.judgement.verdict = Verdict::fail;
    record.judgement.reason = fmt::format(
        "within the bound, but the ratio was {:.4g} in the baseline, and {:g} times "
        "that is the most",
        r.before, options.baseline_factor);
  }
  out.text += fmt::format(
      "baseline {} of samestate {}: {} compared, {} grew more than {:g} times to above {:g}, {} new, {} not "
      "run\n",
      options.baseline, baseline.version, report.compared, grown, options.baseline_factor, kBaselineFloor,
      report.unknown, report.not_run);
  return out;
}

void write_new_baseline(const GateOptions& options, int code, const std::vector<Record>& records) {
  if (options.new_baseline.empty()) return;
  if (code == kPass) {
    write_baseline(options.new_baseline, baseline_of(records, SAMESTATE_VERSION));
  } else {
    fmt::print(stderr, "samestate: {} was not written: the gate did not pass\n", options.new_baseline);
  }
}

/// In the order of the cases, whatever the order in which they finished.
std::vector<Record> in_order(std::map<std::size_t, Record>& done) {
  std::vector<Record> records;
  for (auto& [index, record] : done) records.push_back(std::move(record));
  return records;
}

void report(const GateOptions& options, const std::vector<Record>& records, const Run& run,
            const RunEnd& end) {
  if (!options.junit.empty()) write_junit(options.junit, records, run, end);
  if (!options.markdown.empty()) write_markdown(options.markdown, records, run, end);
  if (options.json) return;
  const Shard shard = shard_of(options.shard);
  fmt::print("{}{} in {:.1f} s on {} thread(s), seed {}{}.\n", terminal_text(records, colour()),
             counted(std::ssize(records), "case"), end.seconds, options.threads, options.plan.seed,
             shard.count > 1 ? fmt::format(", shard {}", options.shard) : "");
  fmt::print("{}", nearest_cards(records));
}

int print_plan(const std::vector<Case>& cases, bool json) {
  if (json) {
    // What a case takes, in the plan's unit: a shard, or a machine, can be given as much as another.
    nlohmann::ordered_json rows = nlohmann::ordered_json::array();
    for (const Case& c : cases)
      rows.push_back({{"line", format_case(c)}, {"work", system_named(c.system).work(c)}});
    fmt::print("{}\n", rows.dump(2));
    return kPass;
  }
  std::vector<std::string> lines;
  for (const Case& c : cases) lines.push_back(format_case(c));
  fmt::print("{}", listed(lines, false));
  return kPass;
}

/// The kernels run in a worker process: one that crashes, hangs, or ends the process with a code of its choice
/// has that verdict, and the run goes on.
int run_gate(GateOptions options) {
  const double timeout = seconds_of("--timeout", options.timeout);
  const double budget = seconds_of("--budget", options.budget);
  require_different({{"--jsonl", options.jsonl},
                     {"--junit", options.junit},
                     {"--markdown", options.markdown},
                     {"--coverage", options.coverage},
                     {"--write-baseline", options.new_baseline}});
  options.plan.filter = filter_of(options.filter);
  const KernelTable table = kernel_table(options.plugins, options.plan.filter, options.strict);
  options.plan.kernel = kernels_asked(options.plan.kernel, table);
  // What is wrong is said before the plan is made, which takes a while.
  const Shard shard = shard_of(options.shard);
  const std::vector<CorpusEntry> corpus = corpus_of(options.corpus);
  std::optional<Baseline> baseline;
  if (!options.baseline.empty()) baseline = read_baseline(options.baseline);
  for (const std::string& path : {options.junit, options.markdown, options.new_baseline, options.coverage}) {
    if (!path.empty() && !options.list) require_writable(path);
  }
  if (!options.list) note_interrupts();
  std::vector<LeftOut> left;
  Plan plan = cases_of(options, table, corpus, shard, left);
  std::vector<Case>& cases = plan.cases;
  if (options.list) return print_plan(cases, options.json);
  Run run = this_run(accelerator(), options.plugins, options.commit);
  run.planned = std::ssize(cases);
  std::unique_ptr<JsonLinesWriter> lines;
  if (!options.jsonl.empty()) lines = std::make_unique<JsonLinesWriter>(options.jsonl, run);
  std::map<std::size_t, Record> done;
  std::vector<std::int64_t> numbers(cases.size(), -1);
  std::vector<bool> started(cases.size());
  Progress progress(std::ssize(cases));

  CampaignObserver observer;
  observer.started = [&](std::size_t i, const Case& c) {
    started[i] = true;
    if (lines) numbers[i] = lines->start(planned_record(c, table));
  };
  bool failed = false;
  observer.finished = [&](std::size_t i, Record record) {
    // A line takes the time that it took here.
    if (record.judgement.verdict == Verdict::timeout) record.options += " --timeout " + options.timeout;
    if (lines) lines->end(numbers[i], record);
    failed = failed || is_failure(record.judgement.verdict);
    progress.step(record.judgement.ratio, is_failure(record.judgement.verdict));
    done.emplace(i, std::move(record));
  };
  const auto begin = std::chrono::steady_clock::now();
  const auto stop = [&] { return interrupted() || (options.fail_fast && failed); };
  CampaignResult result = run_campaign(cases, table, {options.threads, budget, timeout}, observer, stop);
  // Pairs whose cases were all vacuous, in other cases.
  for (int round = 0; round < kCoverAgain && is_whole(options) && budget == 0 && !stop(); ++round) {
    std::vector<Case> again = judged_of(plan, done).again(table, options.plan.seed, round);
    (void)keep_callable(again, table, 0);
    if (options.variants > 0) leave_compiled(again, table);
    if (again.empty()) break;
    const std::size_t first = cases.size();
    cases.insert(cases.end(), again.begin(), again.end());
    numbers.resize(cases.size(), -1);
    started.resize(cases.size());
    plan.total += std::ssize(again);
    progress.add(std::ssize(again));
    const CampaignObserver behind{
        [&](std::size_t i, const Case& c) { observer.started(first + i, c); },
        [&](std::size_t i, const Record& record) { observer.finished(first + i, record); }};
    const CampaignResult more = run_campaign(again, table, {options.threads, 0.0, timeout}, behind, stop);
    result.run += more.run;
    result.not_started += more.not_started;
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  progress.clear();
  const std::string coverage = met_by(options, plan, done);
  std::vector<Record> records = in_order(done);
  mark_missing_devices(records);
  const auto shares = judged_shares(records, not_started(cases, table, started));
  std::optional<Growth> growth;
  if (baseline) growth = mark_grown(*baseline, options, table, records);
  explain_kinds(records, table);
  const Summary summary = summarise(records);
  RunEnd end{
      seconds.count(), std::to_string(options.plan.seed), kPass, left_of(options, summary, result), {}};
  end.exit = verdict_of(summary, result, too_little(shares, options.least_judged), end.remarks);
  if (end.exit == kPass && growth && growth->compared == 0) {
    end.remarks.push_back(
        fmt::format("no case of this run is in {}: nothing was compared", options.baseline));
    end.exit = kVacuous;
  }
  if (lines) lines->finish(end);
  report(options, records, run, end);
  if (!coverage.empty()) fmt::print(aside(options), "{}", coverage);
  for (const LeftOut& of : left) fmt::print(aside(options), "{}\n", text_of(of));
  if (options.plan.max_cases > 0 && plan.total > options.plan.max_cases)
    fmt::print(aside(options), "--max-cases kept {} of {} planned cases.\n", options.plan.max_cases,
               plan.total);
  if (!end.not_complete.empty()) fmt::print(aside(options), "{}\n", end.not_complete);
  if (growth) fmt::print(aside(options), "{}", growth->text);
  for (const std::string& remark : end.remarks) fmt::print(stderr, "samestate: {}\n", remark);
  write_new_baseline(options, end.exit, records);
  if (options.json) fmt::print("{}", gate_json(records, end));
  return end.exit;
}

}  // namespace

Command add_gate(CLI::App& app) {
  auto options = std::make_shared<GateOptions>();
  app.footer(
      "The corpus comes first, then edge cases, then a set that has each pair of choices and each boundary "
      "of each "
      "size,\nthen drawn ones; the same options give the same cases on every machine. Failures\n"
      "are shown by kernel, form, law and likely cause, with the command that repeats an example of each.\n\n"
      "  samestate gate --system retention --effort 10\n"
      "  samestate gate --plugin ./mine.so --kernel mine.gated_delta_rule.chunked --junit gate.xml\n"
      "  samestate gate --contract bf16 --where 'T=64..4096' --exclude regime=measured --fail-fast\n"
      "  samestate gate --law '*' --shard 0/4                    the first of four jobs\n"
      "  samestate gate --system retention --list | samestate repro -\n\n" +
      filter_help());
  app.add_option("--jsonl", options->jsonl, "write every case as JSON Lines, flushed case by case")
      ->check(named());
  app.add_option("--junit", options->junit, "write JUnit XML")->check(named());
  app.add_option("--markdown", options->markdown, "write a Markdown summary, worst first")->check(named());
  app.add_option("--coverage", options->coverage,
                 "write as JSON which pairs of contract, regime, form, law, sizes and settings were judged, "
                 "by kernel")
      ->check(named());
  app.add_option("--corpus", options->corpus, "replay the cases of this folder first")->check(named());
  app.add_option("--baseline", options->baseline, "fail where a ratio has grown since this file was written")
      ->check(named());
  app.add_option("--baseline-factor", options->baseline_factor,
                 "growth that fails, where the ratio is above 0.1 now")
      ->capture_default_str()
      ->check(number_in(1.0, 1e9));
  app.add_option("--write-baseline", options->new_baseline, "write the ratios of this run, if it passes")
      ->check(named());
  app.add_option(
         "--least-judged", options->least_judged,
         "share of a kernel's planned cases that must be judged, those outside its declared limits left out")
      ->capture_default_str()
      ->check(number_in(0.0, 1.0));
  app.add_option("--variants", options->variants,
                 "of a kernel that is compiled anew for other sizes or settings (its declaration's "
                 "\"variant\"), at most "
                 "so many, each compiled once (0: all)")
      ->capture_default_str()
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1000000}));
  add_commit_option(app, options->commit);
  app.add_option("--budget", options->budget,
                 "start no case after this time: 90, 90s, 5m, 1.5h (0: no limit)")
      ->capture_default_str();
  app.add_option("--effort", options->plan.effort,
                 "multiplies the drawn cases and widens their sizes; from 10 on every triple of choices")
      ->capture_default_str()
      ->check(number_in(0.0, 1e4));
  app.add_option("--max-cases", options->plan.max_cases,
                 "at most this many cases, spread over the plan (0: all)")
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1} << 40));
  app.add_option("--seed", options->plan.seed, "seed of the seeded cases")
      ->check(seed_number())
      ->capture_default_str();
  app.add_option("--device", options->plan.device, "only kernels of this device: cpu or cuda")
      ->check(named());
  add_names(app, "--system", options->plan.system, "only this system (repeatable; patterns with * and ?)");
  add_names(app, "--kernel", options->plan.kernel, kKernelHelp);
  add_plugin_option(app, options->plugins);
  add_filter_options(app, options->filter);
  app.add_option("--shard", options->shard, "I/N: only the cases I, I + N, I + 2N, ...")
      ->capture_default_str();
  app.add_flag("--list", options->list, "print the case lines, run none");
  app.add_flag("--strict", options->strict, kStrictHelp);
  app.add_flag("--fail-fast", options->fail_fast, "start no case after the first failure");
  app.add_flag("--json", options->json, "machine-readable, instead of the summary; with --list too");
  app.add_option("--timeout", options->timeout, "a case that takes longer is a timeout (0: no limit)")
      ->capture_default_str();
  app.add_option("--threads", options->threads, "cases at a time")
      ->capture_default_str()
      ->check(CLI::Range(1, 1024));
  return [options] { return run_gate(*options); };
}

}  // namespace samestate::cli
