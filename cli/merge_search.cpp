#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "cli/commands.h"
#include "cli/coverage_table.h"
#include "cli/gate_plan.h"
#include "cli/merge.h"
#include "cli/table.h"
#include "cli/terminal.h"
#include "cli/verdicts.h"
#include "fuzz/search/bug_conditions.h"
#include "reference/error.h"
#include "reports/records/summary.h"
#include "reports/text/gate_json.h"
#include "reports/text/junit.h"
#include "reports/text/markdown.h"
#include "reports/text/terminal.h"

namespace samestate::cli {
namespace {

/// The source from which the run's search draws, if this command has its kernels.
struct Source {
  KernelTable table;
  std::unique_ptr<CaseSource> cases;
};

std::unique_ptr<Source> source_of(const MergedRun& merged, const MergeOptions& options) {
  if (plugin_identities(options.plugins) != merged.run.plugins) return nullptr;
  // The options of a gate's plan that a search has too.
  RunPart part = merged.run.part;
  part.options.erase("seed");
  const GatePlanOptions of = options_of(part);
  auto out =
      std::make_unique<Source>(Source{kernel_table(options.plugins, of.plan.filter, of.strict), nullptr});
  out->cases = std::make_unique<CaseSource>(
      out->table, SearchFilter{of.plan.system, of.plan.device, of.plan.kernel, of.plan.filter}, 0);
  if (out->cases->fingerprint() != merged.run.part.plan) return nullptr;
  return out;
}

}  // namespace

int merge_search(MergedRun merged, const MergeOptions& options) {
  if (!options.coverage.empty())
    throw Error("--coverage is for a gate; the summary of a search says what it reached");
  MergedFile file(options.jsonl, merged.run);
  SearchOutcome outcome;
  for (std::size_t i = 0; i < merged.records.size(); ++i) {
    const Record& record = merged.records[i];
    file.lines().end(merged.numbers[i], record);
    ++outcome.cases[record.judgement.verdict];
    add_to(outcome.shares, record);
  }
  const std::unique_ptr<Source> source = source_of(merged, options);
  std::unique_ptr<Coverage> coverage;
  if (source) {
    coverage = std::make_unique<Coverage>(*source->cases);
    for (const Record& record : merged.records) {
      const Case c = parse_case(record.line);
      coverage->add(c, {record.judgement, record.seconds, edges_of(c)});
    }
  }
  outcome.coverage = coverage.get();
  outcome.kinds = by_verdict(merged.end.kinds);
  outcome.filtered = merged.run.part.options.contains("where");
  outcome.interrupted = merged.end.interrupted;
  RunEnd& end = merged.end;
  end.exit = judge_search(outcome, end.remarks);
  file.lines().finish(end);
  if (!options.json) {
    fmt::print("{}", folded(terminal_text(merged.records, colour()), columns_of_stdout()));
    fmt::print("seed {}: {} in {:.1f} s in {} shards, the longest {:.1f} s\n", end.seed,
               counted(std::ssize(merged.records), "case"), end.seconds, merged.seconds.size(),
               *std::max_element(merged.seconds.begin(), merged.seconds.end()));
    fmt::print("{}",
               coverage
                   ? coverage_table(*coverage)
                   : "what was reached is not counted here: that needs the kernels, --plugin as the search "
                     "had it\n");
    if (!end.not_complete.empty()) fmt::print("{}\n", end.not_complete);
  }
  for (const std::string& remark : end.remarks) fmt::print(stderr, "samestate: {}\n", remark);
  if (!options.junit.empty()) write_junit(options.junit, merged.records, merged.run, end);
  if (!options.markdown.empty()) write_markdown(options.markdown, merged.records, merged.run, end);
  if (options.json) fmt::print("{}", gate_json(merged.records, end));
  const bool lost = !file.lines().lost().empty();
  if (lost) fmt::print(stderr, "samestate: {}\n", file.lines().lost());
  return !lost && file.keep() ? end.exit : end.exit == kPass ? static_cast<int>(kUsage) : end.exit;
}

int merge_sweep(MergedRun merged, const MergeOptions& options) {
  for (const std::string& path : {options.junit, options.markdown, options.coverage, options.new_baseline}) {
    if (!path.empty())
      throw Error(
          path +
          ": a sweep only has points; --jsonl FILE writes them, and `samestate report FILE` draws them");
  }
  if (options.jsonl.empty())
    throw Error("--jsonl FILE is missing; it names the file for the points of all shards");
  MergedFile file(options.jsonl, merged.run);
  VerdictCounts counts;
  for (std::size_t i = 0; i < merged.points.size(); ++i) {
    file.lines().point(merged.points[i], merged.numbers[i]);
    ++counts[merged.points[i].record.judgement.verdict];
  }
  const bool lost = !file.lines().lost().empty();
  if (lost) fmt::print(stderr, "samestate: {}\n", file.lines().lost());
  const int code = merged.points.empty() ? static_cast<int>(kNothingRan)
                                         : judge_sweep(counts, std::ssize(merged.points), false);
  if (lost || !file.keep()) return code == kPass ? static_cast<int>(kUsage) : code;
  fmt::print("{} points of {} shards in {}, {} failed. `samestate report {} --out DIR` draws them.\n",
             merged.points.size(), merged.seconds.size(), options.jsonl,
             std::ssize(merged.points) - counts[Verdict::pass] - counts[Verdict::vacuous] -
                 counts[Verdict::skipped] - counts[Verdict::unsupported],
             options.jsonl);
  return code;
}

}  // namespace samestate::cli
