#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>

#include "cli/commands.h"
#include "cli/duration.h"
#include "cli/gate_result.h"
#include "cli/gate_run.h"
#include "cli/interrupt.h"
#include "cli/merge.h"
#include "cli/subject_log.h"
#include "cli/table.h"
#include "reference/error.h"
#include "reports/records/judged_share.h"
#include "reports/records/summary.h"

namespace samestate::cli {
namespace {

std::string option_of(const MergedRun& merged, const std::string& name, const std::string& otherwise) {
  const auto found = merged.run.part.options.find(name);
  return found == merged.run.part.options.end() ? otherwise : found->second;
}

double number_of(const MergedRun& merged, const std::string& name, double otherwise) {
  const std::string text = option_of(merged, name, "");
  if (text.empty()) return otherwise;
  double value = 0.0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc{} && end == text.data() + text.size()) return value;
  throw Error(fmt::format("the run in the files has --{} '{}', which is not a number; the files were changed",
                          name, text));
}

/// The kernels of the run, if this command has them.
struct Kernels {
  KernelTable table;
  GatePlanOptions options;
  Plan plan;  ///< the coverage that the cases are chosen for
};

/// Returns nullopt, and the reason in `why`, if they are not available here.
std::optional<Kernels> kernels_of(const MergedRun& merged, const MergeOptions& options, std::string& why) {
  const std::string here = plugin_identities(options.plugins);
  if (here != merged.run.plugins) {
    why = merged.run.plugins.empty()
              ? fmt::format("the gate had no plugin, but this command has {}; leave out --plugin", here)
              : fmt::format("they need the kernels of {}; name them with --plugin, as in the gate{}",
                            merged.run.plugins, here.empty() ? "" : "; this command has " + here);
    return std::nullopt;
  }
  GatePlanOptions of = options_of(merged.run.part);
  KernelTable table = kernel_table(options.plugins, of.plan.filter, of.strict);
  // Pairs and ordinary calls need a plan; triples are counted without one.
  PlanOptions bare = of.plan;
  bare.effort = std::min(bare.effort, kTriples / 2);
  bare.max_cases = 0;
  bare.stop = interrupted;
  Plan plan = plan_of(table, bare);
  return Kernels{std::move(table), std::move(of), std::move(plan)};
}

/// Returns true if this machine has the devices on which the run's cases ran.
bool same_devices(const MergedRun& merged) {
  const bool cuda = std::any_of(merged.records.begin(), merged.records.end(), [](const Record& r) {
    return r.device == "cuda" && is_judged(r.judgement.verdict);
  });
  return !cuda || accelerator().name == merged.run.device;
}

}  // namespace

int merge_gate(MergedRun merged, const MergeOptions& options) {
  SubjectLog log(options.plugins);
  const double timeout = seconds_of("--timeout", option_of(merged, "timeout", "10m"));
  const double budget = seconds_of("--budget", option_of(merged, "budget", "0"));
  const double factor = number_of(merged, "baseline-factor", 2.0);
  note_interrupts();
  MergedFile file(options.jsonl, merged.run);

  GateResult result;
  result.run = merged.run;
  result.end = merged.end;
  result.left = merged.left;
  result.least_judged = number_of(merged, "least-judged", 0.5);
  result.baseline = option_of(merged, "baseline", "");
  const GatePlanOptions of = options_of(merged.run.part);
  const bool counts = options.coverage.empty() ? of.plan.max_cases == 0 && of.plan.filter.empty() : true;
  const bool cut = merged.end.interrupted || merged.left > 0;
  const std::int64_t total = merged.run.part.total;
  const bool whole = owes_pairs(of.plan, budget) && !cut;
  const bool open = whole && merged.seconds.size() > 1;
  const bool again = open && !options.no_again;
  std::string why;
  const std::optional<Kernels> kernels = counts ? kernels_of(merged, options, why) : std::nullopt;
  if (!kernels && !options.coverage.empty())
    throw Error(fmt::format("--coverage {}: {}", options.coverage, why));
  const bool here = kernels && same_devices(merged);
  const KernelTable none({}, {});
  RunLines as_they_end;  // not used, because the file is in the order of the plan
  GateRun run(kernels ? kernels->table : none, {{options.threads, 0.0, timeout}, "10m", false}, as_they_end);
  run.take(merged.records, merged.numbers);
  if (again && here) run.cover_pairs(kernels->plan, kernels->options, total);
  run.clear_progress();
  result.records = run.records();
  result.numbers = run.numbers();
  for (std::size_t i = 0; i < result.records.size(); ++i)
    file.lines().end(result.numbers[i], result.records[i]);
  if (kernels && total > 0) {
    const PlanCoverage coverage = judged_of(kernels->plan, result.records);
    result.coverage = coverage_text(coverage, whole);
    if (whole) result.pairs = coverage.pairs();
    const CallCoverage calls = judged_calls(kernels->plan, result.records);
    result.coverage += calls.text(kShownCalls);
    if (!options.coverage.empty()) result.coverage_json = with_calls(coverage.json(), calls);
  } else if (!why.empty()) {
    result.coverage = fmt::format("judged pairs are not counted here, {}\n", why);
  }
  if (open && !(again && here)) {
    result.end.notes.push_back(
        fmt::format("Further cases for pairs that no judged case shows were not run{}.",
                    options.no_again ? ": --no-again"
                    : kernels        ? ": their device is " + merged.run.device
                                     : ""));
  }
  mark_missing_devices(result.records);
  count_refusals(result, [&](const std::string& kernel) {
    const auto said = merged.end.limits.find(kernel);
    if (said != merged.end.limits.end()) return said->second;
    // The kernels that refuse these cases here may not be those of the shards.
    return kernels ? kernels->table.row_named(kernel).limits.text() : "";
  });
  std::map<std::int64_t, std::size_t> place;
  for (std::size_t i = 0; i < result.numbers.size(); ++i) place[result.numbers[i]] = i;
  for (std::size_t i = 0; i < result.records.size(); ++i) {
    const auto explained = merged.end.looks_like.find(std::to_string(result.numbers[i]));
    if (explained != merged.end.looks_like.end()) result.records[i].looks_like = explained->second;
  }
  for (const Grown& grown : merged.end.grown) {
    const auto found = place.find(grown.number);
    if (found == place.end())
      throw Error(
          fmt::format("case {} grew, but is in none of the files; they were changed, so run the shards again",
                      grown.number));
    Record& record = result.records[found->second];
    result.growth += fmt::format("  ratio {:.4g}, was {:.4g}: {}\n", record.judgement.ratio, grown.before,
                                 repro_command(record));
    count_as_grown(record, grown.before, factor);
  }
  if (!result.baseline.empty()) {
    result.growth +=
        fmt::format("baseline {}: {} compared, {} grew more than {:g} times to above {:g}\n", result.baseline,
                    merged.end.compared, merged.end.grown.size(), factor, kBaselineFloor);
  }
  if (here) explain_kinds(result, kernels->table);
  if (const std::string printed = log.text(); !printed.empty()) result.end.notes.push_back(printed);
  result.end.interrupted = result.end.interrupted || interrupted() || !file.lines().lost().empty();
  judge_gate(result);
  result.how =
      fmt::format(" in {}, the longest {:.1f} s, seed {}",
                  merged.seconds.size() == 1 ? "one run" : fmt::format("{} shards", merged.seconds.size()),
                  *std::max_element(merged.seconds.begin(), merged.seconds.end()), merged.end.seed);
  const int code = report_gate(
      result, {options.junit, options.markdown, options.coverage, options.new_baseline, options.json},
      file.lines());
  return file.keep() || code != kPass ? code : static_cast<int>(kUsage);
}

}  // namespace samestate::cli
