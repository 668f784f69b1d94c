#include <fmt/format.h>

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <thread>

#include "cli/commands.h"
#include "cli/corpus.h"
#include "cli/duration.h"
#include "cli/interrupt.h"
#include "cli/options.h"
#include "cli/progress.h"
#include "cli/table.h"
#include "fuzz/plan.h"
#include "fuzz/search/search.h"
#include "harness/processes/campaign.h"
#include "reference/error.h"
#include "reports/records/baseline.h"
#include "reports/records/files.h"
#include "reports/records/json_lines.h"
#include "reports/records/judged_share.h"
#include "reports/records/summary.h"
#include "reports/text/junit.h"
#include "reports/text/markdown.h"
#include "reports/text/terminal.h"
#include "samestate_kernel_sources.h"
#include "samestate_version.h"

namespace samestate::cli {
namespace {

/// Share of vacuous cases above which the gate says that it covered too little.
constexpr double kVacuousShare = 0.05;

struct GateOptions {
  PlanOptions plan;
  std::vector<std::string> plugins;
  std::string jsonl, junit, markdown, baseline, new_baseline, timeout = "10m";
  std::string corpus = standard_corpus();
  double baseline_factor = 2.0;
  double least_judged = 0.5;
  double budget = 0.0;
  int threads = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
};

int verdict_of(const Summary& summary, const CampaignResult& result,
               const std::vector<std::string>& too_little) {
  if (result.not_started > 0) {
    fmt::print("{} {} of {} cases.\n", interrupted() ? "Interrupted before" : "The budget ended before",
               result.not_started, result.not_started + result.run);
  }
  if (summary.count(Verdict::crash) + summary.count(Verdict::timeout) > 0) return kCrash;
  if (summary.count(Verdict::fail) > 0) return kFail;
  if (summary.count(Verdict::flaky) > 0) return kFlaky;
  if (summary.judged == 0) {
    return summary.count(Verdict::vacuous) > 0 || result.not_started > 0 ? kVacuous : kNothingRan;
  }
  const double vacuous = static_cast<double>(summary.count(Verdict::vacuous));
  if (vacuous > kVacuousShare * (vacuous + static_cast<double>(summary.judged))) {
    fmt::print(stderr,
               "samestate: {:.0f} of {:.0f} cases were vacuous, more than {:.0f} %: too little was covered\n",
               vacuous, vacuous + static_cast<double>(summary.judged), 100 * kVacuousShare);
    return kVacuous;
  }
  for (const std::string& sentence : too_little) fmt::print(stderr, "samestate: {}\n", sentence);
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

/// The corpus, then the plan; thinned together where the cases are limited.
std::vector<Case> cases_of(const GateOptions& options, const KernelTable& table) {
  PlanOptions all = options.plan;
  all.max_cases = 0;
  const std::vector<Case> planned = plan_cases(table, all);  // checks the filters
  std::vector<Case> cases = corpus_cases(corpus_of(options.corpus), table, options.plan);
  cases.insert(cases.end(), planned.begin(), planned.end());
  const std::int64_t total = std::ssize(cases);
  const std::int64_t most = options.plan.max_cases;
  if (most <= 0 || total <= most) return cases;
  std::vector<Case> kept;
  for (std::int64_t i = 0; i < most; ++i) kept.push_back(cases[static_cast<std::size_t>(i * total / most)]);
  fmt::print("--max-cases keeps {} of {} planned cases.\n", most, total);
  return kept;
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
    out.text += fmt::format("  ratio {:.4g}, was {:.4g}{}: {}\n", r.now, r.before,
                            deterministic ? "" : " (not deterministic: does not count)",
                            repro_command(record, plugin_options(options.plugins)));
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

int with_baseline(int code, const std::optional<Growth>& growth, const GateOptions& options,
                  const std::vector<Record>& records) {
  if (growth) {
    fmt::print("{}", growth->text);
    if (code == kPass && growth->compared == 0) {
      fmt::print(stderr, "samestate: no case of this run is in {}: nothing was compared\n", options.baseline);
      code = kVacuous;
    }
  }
  if (!options.new_baseline.empty()) {
    if (code == kPass) {
      write_baseline(options.new_baseline, baseline_of(records, SAMESTATE_VERSION));
    } else {
      fmt::print(stderr, "samestate: {} was not written: the gate did not pass\n", options.new_baseline);
    }
  }
  return code;
}

/// In the order of the cases, whatever the order in which they finished.
std::vector<Record> in_order(std::map<std::size_t, Record>& done) {
  std::vector<Record> records;
  for (auto& [index, record] : done) records.push_back(std::move(record));
  return records;
}

void report(const GateOptions& options, const std::vector<Record>& records, const Run& run, double seconds) {
  if (!options.junit.empty()) write_junit(options.junit, records, run);
  if (!options.markdown.empty()) write_markdown(options.markdown, records, run);
  fmt::print("{}{} cases in {:.1f} s on {} thread(s), seed {}.\n", terminal_text(records, run.options),
             records.size(), seconds, options.threads, options.plan.seed);
}

/// The kernels run in a worker process: one that crashes, hangs, or ends the process with a code of its choice
/// has that verdict, and the run goes on.
int run_gate(const GateOptions& options) {
  const KernelTable table = kernel_table(options.plugins);
  const std::vector<Case> cases = cases_of(options, table);
  std::optional<Baseline> baseline;
  if (!options.baseline.empty()) baseline = read_baseline(options.baseline);
  const double timeout = seconds_of("--timeout", options.timeout);
  const Accelerator device = accelerator();
  const Run run{SAMESTATE_VERSION,
                "",
                device.name.empty() ? "cpu" : device.name,
                device.driver,
                device.toolkit,
                SAMESTATE_CUDA_SOURCES,
                plugin_options(options.plugins)};

  for (const std::string& path : {options.junit, options.markdown, options.new_baseline}) {
    if (!path.empty()) require_writable(path);
  }
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
  observer.finished = [&](std::size_t i, const Record& record) {
    if (lines) lines->end(numbers[i], record);
    progress.step(record.judgement.ratio, is_failure(record.judgement.verdict));
    done.emplace(i, record);
  };
  note_interrupts();
  const auto begin = std::chrono::steady_clock::now();
  const CampaignResult result =
      run_campaign(cases, table, {options.threads, options.budget, timeout}, observer, interrupted);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  progress.clear();
  std::vector<Record> records = in_order(done);
  mark_missing_devices(records);
  const auto shares = judged_shares(records, not_started(cases, table, started));
  std::optional<Growth> growth;
  if (baseline) growth = mark_grown(*baseline, options, table, records);
  report(options, records, run, seconds.count());
  return with_baseline(verdict_of(summarise(records), result, too_little(shares, options.least_judged)),
                       growth, options, records);
}

}  // namespace

Command add_gate(CLI::App& app) {
  auto options = std::make_shared<GateOptions>();
  app.footer(
      "The corpus comes first, then edge cases, then seeded ones; the same options give the same cases on "
      "every machine. A "
      "failing case prints\n"
      "the command that repeats it.\n\n"
      "  samestate gate --system retention --effort 10\n"
      "  samestate gate --plugin ./mine.so --kernel mine.gated_delta_rule.chunked --junit gate.xml");
  app.add_option("--jsonl", options->jsonl, "write every case as JSON Lines, flushed case by case")
      ->check(named());
  app.add_option("--junit", options->junit, "write JUnit XML")->check(named());
  app.add_option("--markdown", options->markdown, "write a Markdown summary, worst first")->check(named());
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
  app.add_option("--budget", options->budget, "start no case after this many seconds (0: no limit)")
      ->check(number_in(0.0, 1e9));
  app.add_option("--effort", options->plan.effort, "multiplies the seeded cases")
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
  app.add_option("--system", options->plan.system, "only this system")->check(named());
  app.add_option("--kernel", options->plan.kernel, "only this kernel")->check(named());
  app.add_option("--plugin", options->plugins, "load kernels from a shared library (repeatable)")
      ->check(named());
  app.add_option("--timeout", options->timeout, "a case that takes longer is a timeout (0: no limit)")
      ->capture_default_str();
  app.add_option("--threads", options->threads, "cases at a time")
      ->capture_default_str()
      ->check(CLI::Range(1, 1024));
  return [options] { return run_gate(*options); };
}

}  // namespace samestate::cli
