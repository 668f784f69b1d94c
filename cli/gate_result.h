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

/// Where the results of a gate go, and as what.
struct GateReports {
  std::string junit, markdown, coverage, baseline;  ///< `baseline`: to be written
  bool json = false;  ///< instead of the summary, whose rest then goes to stderr
};

/// What a gate came to, whether one process ran it or `merge` joined it from its shards.
struct GateResult {
  Run run;
  std::vector<Record> records;        ///< in the order of the plan
  std::vector<std::int64_t> numbers;  ///< of the records: their places in it
  RunEnd end;                         ///< judge_gate sets exit and remarks
  std::int64_t left = 0;              ///< cases that were not started
  double least_judged = 0.5;
  std::string how;            ///< of the summary's second line, behind the seconds: " on 2 thread(s), seed 1"
  std::string coverage;       ///< of the plan's pairs, for people; empty: nothing is to be said
  std::string coverage_json;  ///< PlanCoverage::json
  std::optional<CoverageCount> pairs;  ///< of a plan that ran whole
  std::string growth;                  ///< beyond a baseline, for people
  std::string timings;                 ///< timings_text, where that was asked for
  std::string baseline;                ///< its name where there was one
};

/// Why cases were left, of `ran` and `left`; `lost`: of RunLines. Empty: none was.
[[nodiscard]] std::string why_left(std::int64_t ran, std::int64_t left, bool stopped_by_failure,
                                   const std::string& lost);

/// Of the pairs that a plan is made to meet, how many judged cases met; of a plan that ran whole also some that they did
/// not.
[[nodiscard]] std::string coverage_text(const PlanCoverage& coverage, bool whole);

/// Makes a failure of a record that passed, so that every report shows it: its ratio grew.
void count_as_grown(Record& record, double before, double factor);

/// Counts the calls that a kernel refused before it launched anything as refused, where limits that it does not declare explain them
/// (find_refusals); the remarks propose these, behind those of end.lacking. `limits_of`: a kernel's declared limits, as one text.
void count_refusals(GateResult& result,
                    const std::function<std::string(const std::string& kernel)>& limits_of);

/// Says of the example of each kind of failure what it looks like, where nothing said it yet; to end.looks_like too.
/// `fast`: in fewer seconds.
void explain_kinds(GateResult& result, const KernelTable& table, bool fast = false);

/// Sets the exit code, and the remarks that say why it is no pass where no case does.
void judge_gate(GateResult& result);

/// Ends the run file, writes the reports and prints the summary: as many of them as can be written, for a full disk
/// takes none of the others. Returns the exit code, which is 2 where one could not and the verdict was a pass or
/// vacuous.
[[nodiscard]] int report_gate(const GateResult& result, const GateReports& reports, RunLines& lines);

}  // namespace samestate::cli
