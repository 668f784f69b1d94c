#include <fmt/format.h>

#include <charconv>
#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <thread>

#include "cli/commands.h"
#include "cli/corpus.h"
#include "cli/duration.h"
#include "cli/isolated.h"
#include "cli/options.h"
#include "cli/progress.h"
#include "cli/table.h"
#include "fuzz/plan.h"
#include "fuzz/search/search.h"
#include "harness/run/campaign.h"
#include "reference/error.h"
#include "reports/baseline.h"
#include "reports/files.h"
#include "reports/json_lines.h"
#include "reports/junit.h"
#include "reports/markdown.h"
#include "reports/summary.h"
#include "reports/terminal.h"
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
  double budget = 0.0;
  int threads = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
};

int verdict_of(const Summary& summary, const CampaignResult& result) {
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
  if (result.not_started > 0) {
    fmt::print("The budget ended before {} of {} cases.\n", result.not_started,
               result.not_started + result.run);
  }
  return kPass;
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
  Growth out{"", report.compared};
  std::int64_t grown = 0;
  for (const Regression& r : report.grown) {
    Record& record = records[r.record];
    const Case c = parse_case(record.line);
    const bool deterministic =
        run_case(c, table).judgement.ratio == r.now && run_case(c, table).judgement.ratio == r.now;
    out.text += fmt::format("  ratio {:.4g}, was {:.4g}{}: samestate repro '{}'\n", r.now, r.before,
                            deterministic ? "" : " (not deterministic: does not count)", record.line);
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

/// What the child of run_gate leaves for its parent, which finishes the reports where the child is lost.
struct Shared {
  explicit Shared(const GateOptions& options) : under_way(static_cast<std::size_t>(options.threads)) {}
  UnderWay under_way;
  ChildLines findings;  ///< index of the case, a tab, result_text
};

/// In the order of the cases, whatever the order in which they finished.
std::vector<Record> in_order(std::map<std::size_t, Record>& done) {
  std::vector<Record> records;
  for (auto& [index, record] : done) records.push_back(std::move(record));
  return records;
}

void report(const GateOptions& options, const std::vector<Record>& records, const Run& run, double seconds) {
  if (!options.junit.empty()) write_junit(options.junit, records, run);
  if (!options.markdown.empty()) write_markdown(options.markdown, records, run);
  fmt::print("{}{} cases in {:.1f} s on {} thread(s), seed {}.\n", terminal_text(records), records.size(),
             seconds, options.threads, options.plan.seed);
}

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

int run_cases(const GateOptions& options, const KernelTable& table, const std::vector<Case>& cases,
              const std::optional<Baseline>& baseline, Shared& shared) {
  const Accelerator device = accelerator();
  const Run run{
      SAMESTATE_VERSION,     "", device.name.empty() ? "cpu" : device.name, device.driver, device.toolkit,
      SAMESTATE_CUDA_SOURCES};

  for (const std::string& path : {options.junit, options.markdown, options.new_baseline}) {
    if (!path.empty()) require_writable(path);
  }
  std::unique_ptr<JsonLinesWriter> lines;
  if (!options.jsonl.empty()) lines = std::make_unique<JsonLinesWriter>(options.jsonl, run);
  std::map<std::size_t, Record> done;
  std::vector<std::int64_t> numbers(cases.size(), -1);
  Progress progress(std::ssize(cases));

  CampaignObserver observer;
  observer.started = [&](std::size_t i, const Case& c) {
    shared.under_way.begin(static_cast<std::int64_t>(i));
    if (lines) numbers[i] = lines->start(planned_record(c, table));
  };
  observer.finished = [&](std::size_t i, const Record& record) {
    if (lines) lines->end(numbers[i], record);
    progress.step(record.judgement.ratio,
                  record.judgement.verdict == Verdict::fail || record.judgement.verdict == Verdict::crash);
    done.emplace(i, record);
    shared.findings.add(fmt::format("{}\t{}", i, result_text({record.judgement, record.seconds, 0})));
    shared.under_way.end(static_cast<std::int64_t>(i));
  };
  const auto begin = std::chrono::steady_clock::now();
  const CampaignResult result = run_campaign(cases, table, {options.threads, options.budget}, observer);
  const double seconds = seconds_since(begin);
  std::vector<Record> records = in_order(done);
  std::optional<Growth> growth;
  if (baseline) growth = mark_grown(*baseline, options, table, records);
  report(options, records, run, seconds);
  return with_baseline(verdict_of(summarise(records), result), growth, options, records);
}

/// The reports of a run whose process is lost: what it had finished, and what was under way as `verdict`.
int report_lost(const GateOptions& options, const KernelTable& table, const std::vector<Case>& cases,
                const Shared& shared, Verdict verdict, const std::string& reason, double seconds) {
  std::map<std::size_t, Record> done;
  for (const std::string& line : shared.findings.lines()) {
    std::size_t i = cases.size();
    const char* const end = std::from_chars(line.data(), line.data() + line.size(), i).ptr;
    if (i >= cases.size() || *end != '\t') throw Error("the record of a case is damaged: run the gate again");
    done.emplace(i, record_of(cases[i], table, parse_result(std::string_view(end + 1))));
  }
  const double limit = verdict == Verdict::timeout ? seconds_of("--timeout", options.timeout) : 0.0;
  const std::vector<std::int64_t> left = shared.under_way.left(limit);
  fmt::print(stderr, "samestate: {}; `samestate fuzz` runs each case apart. Under way:\n", reason);
  for (const std::int64_t number : left) {
    const auto i = static_cast<std::size_t>(number);
    CaseResult finding;
    finding.judgement.verdict = verdict;
    finding.judgement.reason =
        left.size() == 1 ? reason : fmt::format("{}, in this case or another of {}", reason, left.size());
    const Record record = record_of(cases[i], table, finding);
    fmt::print(stderr, "  samestate repro{} '{}'\n", plugin_options(options.plugins), record.line);
    done.emplace(i, record);
  }
  const std::vector<Record> records = in_order(done);
  report(options, records, {SAMESTATE_VERSION, "", options.plan.device, "", "", SAMESTATE_CUDA_SOURCES},
         seconds);
  fmt::print("{} of {} cases were not run.\n", cases.size() - records.size(), cases.size());
  return kCrash;
}

/// The cases run in a child: a kernel that crashes, hangs, or ends the process with a code of its choice, is
/// no pass. They share it, so that threads of one kernel meet.
int run_gate(const GateOptions& options) {
  const KernelTable table = kernel_table(options.plugins);
  const std::vector<Case> cases = cases_of(options, table);
  std::optional<Baseline> baseline;
  if (!options.baseline.empty()) baseline = read_baseline(options.baseline);
  const double timeout = seconds_of("--timeout", options.timeout);
  Shared shared(options);
  const auto begin = std::chrono::steady_clock::now();
  return run_isolated(
      [&] { return run_cases(options, table, cases, baseline, shared); },
      [&](double) { return shared.under_way.left(timeout).empty() ? "" : no_answer(timeout + 1, timeout); },
      [&](Verdict verdict, const std::string& reason) {
        return report_lost(options, table, cases, shared, verdict, reason, seconds_since(begin));
      });
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
  app.add_option("--timeout", options->timeout, "a case that takes longer ends the gate (0: no limit)")
      ->capture_default_str();
  app.add_option("--threads", options->threads, "cases at a time")
      ->capture_default_str()
      ->check(CLI::Range(1, 1024));
  return [options] { return run_gate(*options); };
}

}  // namespace samestate::cli
