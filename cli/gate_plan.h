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

/// What decides the cases of a gate. --help of the gate says what each is.
struct GatePlanOptions {
  PlanOptions plan;
  Shard shard;
  /// Variants of a kernel that is compiled by its calls; 0: all; nothing: kStandardCompiles, as far as kCompileSeconds last.
  std::optional<std::int64_t> compiles;
  bool strict = false;
  /// By kernel, limits that it keeps without declaring them (learn_by_calls): cases outside are left out, and counted.
  std::map<std::string, std::vector<std::string>> learned;
};

/// A gate of one such kernel is to take five minutes.
inline constexpr std::int64_t kStandardCompiles = 24;
inline constexpr double kCompileSeconds = 210.0;

/// The cases of one shard of a gate, in the order of the plan.
struct GatePlan {
  Plan plan;                          ///< the cases of the shard, and what all of them are chosen to cover
  std::vector<std::int64_t> numbers;  ///< of the cases: their places among those of all shards
  std::int64_t total = 0;             ///< cases of all shards
  std::string hash;                   ///< PlanHash of them
  std::vector<std::string> notes;     ///< what was left out, a sentence each
  std::int64_t refused = 0;           ///< cases left out by what was learned
};

/// The corpus, then the plan; what a subject is not called for left out, thinned together where the cases are limited,
/// and of these the shard: parts of equal System::work. Throws Error if the filter leaves no case. Empty where the
/// plan was interrupted.
[[nodiscard]] GatePlan gate_plan(const GatePlanOptions& options, const KernelTable& table,
                                 const std::vector<CorpusEntry>& corpus);

/// What `plan` and `options` say in the run line of a file, so that shards that belong together are known; `more` are
/// options that decide the verdict alone.
[[nodiscard]] RunPart part_of_gate(const GatePlanOptions& options, const GatePlan& plan,
                                   std::map<std::string, std::string> more);

/// The options that part_of_gate wrote, but shard and corpus, which a file does not need to be judged by. Throws Error
/// that names the option for what it did not write.
[[nodiscard]] GatePlanOptions options_of(const RunPart& part);

/// Whether the plan is run as it is made: its pairs are then owed (`budget` seconds, 0: as long as it takes).
[[nodiscard]] bool owes_pairs(const PlanOptions& options, double budget);

/// What those of the records that were judged cover of the plan.
[[nodiscard]] PlanCoverage judged_of(const Plan& plan, std::span<const Record> records);

/// Pairs of model and kind of call that a summary names as not judged.
inline constexpr std::size_t kShownCalls = 3;

/// Which ordinary calls of the plan are among the judged records.
[[nodiscard]] CallCoverage judged_calls(const Plan& plan, std::span<const Record> records);

/// PlanCoverage::json with the calls beside the pairs.
[[nodiscard]] std::string with_calls(const std::string& coverage_json, const CallCoverage& calls);

/// The cases of a further round, for pairs that the records do not show though they could; `round`: 0 to kCoverAgain - 1.
[[nodiscard]] std::vector<Case> further_cases(const PlanCoverage& judged, const GatePlanOptions& options,
                                              const KernelTable& table, int round);

}  // namespace samestate::cli
