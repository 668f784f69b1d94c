#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cli/filter.h"
#include "fuzz/plan/call_coverage.h"
#include "fuzz/plan/corpus.h"
#include "fuzz/plan/plan_coverage.h"
#include "harness/cases/shards.h"
#include "harness/records/record.h"
#include "reports/records/run.h"

namespace samestate::cli {

/// The options that decide which cases a gate runs. `samestate gate --help` says what each means.
struct GatePlanOptions {
  PlanOptions plan;
  Shard shard;
  /// How many variants of a kernel are compiled that its calls compile; 0 means all. Without a value:
  /// kStandardCompiles, as far as kCompileSeconds allow.
  std::optional<std::int64_t> compiles;
  bool strict = false;
  /// By kernel, limits that it keeps without declaring them (learn_by_calls). Cases outside of them are left out and
  /// counted.
  std::map<std::string, std::vector<std::string>> learned;
};

/// With this many variants, a gate of such a kernel should take five minutes.
inline constexpr std::int64_t kStandardCompiles = 24;
inline constexpr double kCompileSeconds = 210.0;

/// The cases of one shard of a gate, in the order of the plan.
struct GatePlan {
  Plan plan;                          ///< the cases of the shard, and what all of them are chosen to cover
  std::vector<std::int64_t> numbers;  ///< the places of the cases among those of all shards
  std::int64_t total = 0;             ///< cases of all shards
  std::string hash;                   ///< PlanHash of the cases of all shards
  std::vector<std::string> notes;     ///< a sentence about each thing that was left out
  std::int64_t refused = 0;           ///< cases that were left out because of learned limits
};

/// Makes the plan of a gate: the corpus, then the planned cases, without those for which a subject is not called. If
/// the number of cases is limited, all are thinned out together. The shard is one of parts with equal System::work.
/// Throws Error if the filter leaves no case. The result is empty if planning was interrupted.
[[nodiscard]] GatePlan gate_plan(const GatePlanOptions& options, const KernelTable& table,
                                 const std::vector<CorpusEntry>& corpus);

/// Writes `plan` and `options` for the run line of a file, so that shards that belong together can be recognised.
/// `more` are options that affect only the verdict.
[[nodiscard]] RunPart part_of_gate(const GatePlanOptions& options, const GatePlan& plan,
                                   std::map<std::string, std::string> more);

/// Returns the options that part_of_gate wrote, without shard and corpus, which are not needed to judge the records of
/// a file. Throws Error that names the option if its value is not one that part_of_gate writes.
[[nodiscard]] GatePlanOptions options_of(const RunPart& part);

/// Returns true if the plan is run in full, so that all its pairs must be covered. `budget` is in seconds; 0 means no
/// limit.
[[nodiscard]] bool owes_pairs(const PlanOptions& options, double budget);

/// Counts what the judged records cover of the plan.
[[nodiscard]] PlanCoverage judged_of(const Plan& plan, std::span<const Record> records);

/// How many pairs of model and kind of call a summary lists as not judged.
inline constexpr std::size_t kShownCalls = 3;

/// Counts which ordinary calls of the plan are among the judged records.
[[nodiscard]] CallCoverage judged_calls(const Plan& plan, std::span<const Record> records);

/// Adds the calls to the pairs of PlanCoverage::json.
[[nodiscard]] std::string with_calls(const std::string& coverage_json, const CallCoverage& calls);

/// Returns cases for pairs that the records do not show although they could; `round` goes from 0 to kCoverAgain - 1.
[[nodiscard]] std::vector<Case> further_cases(const PlanCoverage& judged, const GatePlanOptions& options,
                                              const KernelTable& table, int round);

}  // namespace samestate::cli
