#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "cli/run_lines.h"
#include "fuzz/plan/plan_coverage.h"
#include "harness/run/run_case.h"
#include "reports/records/baseline.h"
#include "reports/records/run.h"

namespace samestate::cli {

/// The files to which the results of a gate are written, and their formats.
struct GateReports {
  std::string junit, markdown, coverage, baseline;  ///< `baseline`: to be written
  bool json = false;  ///< print JSON instead of the summary; other messages then go to stderr
};

/// The result of a gate, whether one process ran it or `merge` joined it from its shards.
struct GateResult {
  Run run;
  std::vector<Record> records;        ///< in the order of the plan
  std::vector<std::int64_t> numbers;  ///< their places in the plan
  RunEnd end;                         ///< judge_gate sets exit and remarks
  std::int64_t left = 0;              ///< cases that were not started
  double least_judged = 0.5;
  std::string how;  ///< the end of the summary's second line, after the seconds: " on 2 thread(s), seed 1"
  std::string coverage;       ///< about the plan's pairs, for people; empty if there is nothing to say
  std::string coverage_json;  ///< PlanCoverage::json
  std::optional<CoverageCount> pairs;  ///< set for a plan that ran to its end
  std::string growth;                  ///< ratios that grew beyond a baseline, for people
  std::string timings;                 ///< timings_text, if requested
  std::string baseline;                ///< its name, if there was one
};

/// Says why `left` of the `ran` + `left` cases were not run; `lost` is that of RunLines. Empty if none was left.
[[nodiscard]] std::string why_left(std::int64_t ran, std::int64_t left, bool stopped_by_failure,
                                   const std::string& lost);

/// How many of the pairs that a plan should cover the judged cases cover; for a plan that ran to its end,
/// also some that they do not.
[[nodiscard]] std::string coverage_text(const PlanCoverage& coverage, bool whole);

/// Turns a record that passed into a failure, because its ratio grew, so that every report shows it.
void count_as_grown(Record& record, double before, double factor);

/// Counts the calls that a kernel refused before it launched anything as refused, if limits that it does not
/// declare explain them (find_refusals); the remarks propose these limits, after those in end.lacking.
/// `limits_of` returns a kernel's declared limits as one text.
void count_refusals(GateResult& result,
                    const std::function<std::string(const std::string& kernel)>& limits_of);

/// Explains an example of each kind of failure that has no explanation yet, and appends the explanation to
/// end.looks_like too. With `fast` it takes fewer seconds.
void explain_kinds(GateResult& result, const KernelTable& table, bool fast = false);

/// Sets the exit code, and adds the remarks that say why the result is not a pass although no case failed.
void judge_gate(GateResult& result);

/// Ends the run file, writes the reports and prints the summary. If one cannot be written, for example
/// because the disk is full, the others still are. Returns the exit code, which is 2 if one could not be
/// written and the verdict was a pass or vacuous.
[[nodiscard]] int report_gate(const GateResult& result, const GateReports& reports, RunLines& lines);

}  // namespace samestate::cli
