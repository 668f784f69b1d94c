#include "cli/gate_result.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <set>

#include "cli/commands.h"
#include "cli/explained.h"
#include "cli/gate_verdict.h"
#include "cli/interrupt.h"
#include "cli/table.h"
#include "cli/terminal.h"
#include "fuzz/plan/plan_coverage.h"
#include "fuzz/plan/refusals.h"
#include "harness/cases/case_line.h"
#include "harness/processes/other_tuning.h"
#include "oracles/reasons.h"
#include "reference/error.h"
#include "reports/records/failure_groups.h"
#include "reports/records/files.h"
#include "reports/records/summary.h"
#include "reports/text/gate_json.h"
#include "reports/text/junit.h"
#include "reports/text/markdown.h"
#include "reports/text/terminal.h"
#include "samestate_version.h"

namespace samestate::cli {
namespace {

/// How many kinds of failures are run again to explain them. At least kExplainedKinds are, and up to
/// kMostExplainedKinds within the same total time until kExplainedKinds of them look like a known mutant. The seconds
/// are those for one kind.
constexpr std::size_t kExplainedKinds = 5;
constexpr std::size_t kMostExplainedKinds = 12;
constexpr double kExplainSeconds = 12.0;
constexpr double kExplainFast = 4.0;

constexpr std::size_t kShownPairs = 3;

/// Returns other failing cases of the record's kernel, first those farthest from their bounds and then a
/// sample of the whole run: a contract that explains one of them must explain these too.
std::vector<Case> other_failures(const std::vector<Record>& records, const Record& example) {
  std::vector<const Record*> failed;
  for (const Record& r : records) {
    if (&r != &example && r.kernel == example.kernel && r.judgement.verdict == Verdict::fail &&
        r.after.empty())
      failed.push_back(&r);
  }
  constexpr std::size_t kMost = 24;  // enough even though a contract's change does not apply to all of them
  std::vector<const Record*> worst = failed;
  std::ranges::stable_sort(
      worst, [](const Record* a, const Record* b) { return a->judgement.ratio > b->judgement.ratio; });
  std::vector<Case> out;
  std::set<const Record*> taken;
  const auto take = [&](const Record* r) {
    if (out.size() < kMost && taken.insert(r).second) out.push_back(parse_case(r->line));
  };
  const std::size_t stride = 1 + failed.size() / (kMost / 2);
  for (std::size_t i = 0; i < failed.size(); ++i) {
    if (i < kMost / 2) take(worst[i]);
    if (i * stride < failed.size()) take(failed[i * stride]);
  }
  return out;
}

}  // namespace

std::string why_left(std::int64_t ran, std::int64_t left, bool stopped_by_failure, const std::string& lost) {
  if (!lost.empty())
    return fmt::format("{}: it contains the cases that ended before that; {} of {} cases were left.", lost,
                       left, ran + left);
  if (left + ran == 0 && interrupted()) return "Interrupted while the cases were planned: none was run.";
  if (left == 0) return "";
  const char* why = interrupted()        ? "Interrupted before"
                    : stopped_by_failure ? "A failure ended the run (--fail-fast) before"
                                         : "The budget ended before";
  return fmt::format("{} {} of {} cases.", why, left, ran + left);
}

std::string coverage_text(const PlanCoverage& coverage, bool whole) {
  std::string text = coverage.text() + "\n";
  for (const std::string& pair : whole ? coverage.missing(kShownPairs) : std::vector<std::string>())
    text += "  not judged with " + pair + "\n";
  return text;
}

void count_as_grown(Record& record, double before, double factor) {
  record.judgement.verdict = Verdict::fail;
  record.judgement.reason = fmt::format(
      "within the bound, but the ratio was {:.4g} in the baseline and may grow by a "
      "factor of at most {:g}",
      before, factor);
}

void count_refusals(GateResult& result,
                    const std::function<std::string(const std::string& kernel)>& limits_of) {
  RunEnd& end = result.end;
  for (const Record& record : result.records) {
    const Judgement& j = record.judgement;
    if (j.verdict == Verdict::crash && j.gate == kRefusal)
      end.limits[record.kernel] = limits_of(record.kernel);
  }
  const std::vector<Refusals> refusals = find_refusals(result.records, limits_of);
  end.remarks = end.lacking;
  for (std::string& sentence : count_as_refused(result.records, refusals))
    end.remarks.push_back(std::move(sentence));
}

void explain_kinds(GateResult& result, const KernelTable& table, bool fast) {
  const double seconds = fast ? kExplainFast : kExplainSeconds;
  const auto begin = std::chrono::steady_clock::now();
  const auto late = [&] {
    const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - begin;
    return spent.count() > seconds * static_cast<double>(kExplainedKinds);
  };
  std::size_t explained = 0, known = 0;
  for (const FailureGroup& group : failure_groups(result.records)) {
    Record& example = result.records[group.example];
    if (example.looks_like.empty()) example.looks_like = configuration_to_blame(example);
    if (example.judgement.verdict != Verdict::fail && example.looks_like.empty()) continue;
    const bool enough = known >= kExplainedKinds || explained == kMostExplainedKinds || late();
    if ((explained >= kExplainedKinds && enough) || interrupted()) return;
    ++explained;
    if (example.looks_like.empty())
      example.looks_like = looks_like(example, other_failures(result.records, example), table, seconds);
    known += example.looks_like.find(kOfMutant) != std::string::npos ? 1 : 0;
    if (!example.looks_like.empty())
      result.end.looks_like[std::to_string(result.numbers[group.example])] = example.looks_like;
  }
}

void judge_gate(GateResult& result) {
  RunEnd& end = result.end;
  end.exit = gate_verdict(result, end.remarks);
  if (end.exit == kPass && !result.baseline.empty() && end.compared == 0) {
    end.remarks.push_back(
        fmt::format("no case of this run is in {}, so nothing was compared", result.baseline));
    end.exit = kVacuous;
  }
}

int report_gate(const GateResult& result, const GateReports& reports, RunLines& lines) {
  const RunEnd& end = result.end;
  bool lost = !lines.lost().empty();
  const auto attempt = [&](const std::function<void()>& write) {
    try {
      write();
    } catch (const Error& error) {
      fmt::print(stderr, "samestate: {}\n", error.what());
      lost = true;
    }
  };
  lines.finish(end);
  if (!lines.lost().empty()) {
    fmt::print(stderr, "samestate: {}\n", lines.lost());
    lost = true;
  }
  if (!reports.junit.empty()) attempt([&] { write_junit(reports.junit, result.records, result.run, end); });
  if (!reports.markdown.empty())
    attempt([&] { write_markdown(reports.markdown, result.records, result.run, end); });
  if (!reports.coverage.empty())
    attempt([&] { write_atomically(reports.coverage, result.coverage_json + "\n"); });
  std::FILE* const aside = reports.json ? stderr : stdout;
  const std::size_t columns = columns_of_stdout();
  if (!reports.json) {
    fmt::print("{}", folded(fmt::format("{}{} in {:.1f} s{}.\n", terminal_text(result.records, colour()),
                                        counted(std::ssize(result.records), "case"), end.seconds, result.how),
                            columns));
    fmt::print("{}", folded(nearest_cards(result.records), columns));
  }
  const std::size_t beside = reports.json ? 0 : columns;
  fmt::print(aside, "{}", folded(result.coverage, beside));
  for (const std::string& note : end.notes) fmt::print(aside, "{}\n", folded(note, beside));
  if (!end.not_complete.empty()) fmt::print(aside, "{}\n", folded(end.not_complete, beside));
  fmt::print(aside, "{}{}", result.growth, result.timings);
  for (const std::string& remark : end.remarks) fmt::print(stderr, "samestate: {}\n", remark);
  if (!reports.baseline.empty() && end.exit != kPass)
    fmt::print(stderr, "samestate: {} was not written: the gate did not pass\n", reports.baseline);
  if (!reports.baseline.empty() && end.exit == kPass)
    attempt([&] { write_baseline(reports.baseline, baseline_of(result.records, SAMESTATE_VERSION)); });
  if (reports.json) fmt::print("{}", gate_json(result.records, end));
  return lost && (end.exit == kPass || end.exit == kVacuous) ? static_cast<int>(kUsage) : end.exit;
}

}  // namespace samestate::cli
