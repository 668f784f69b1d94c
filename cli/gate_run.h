#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "cli/gate_plan.h"
#include "cli/progress.h"
#include "cli/run_lines.h"
#include "harness/processes/campaign.h"

namespace samestate::cli {

/// The options for running the cases of a gate.
struct GateRunOptions {
  CampaignOptions campaign;
  std::string timeout;  ///< as the user typed it, for the command that repeats a case that took longer
  bool fail_fast = false;
};

/// Runs the cases of a plan in worker processes (run_campaign) and keeps their records by their places in the plan. It
/// stops early at an interrupt, after the first failure if that is requested, and if its run file cannot be written.
class GateRun {
 public:
  GateRun(const KernelTable& table, GateRunOptions options, RunLines& lines)
      : table_(table), options_(std::move(options)), lines_(lines) {}

  /// Runs all of `cases`; `numbers` are their places in the plan.
  void run(std::span<const Case> cases, std::span<const std::int64_t> numbers);

  /// Runs those of `cases` that were not given to `take`.
  void run_rest(std::span<const Case> cases, std::span<const std::int64_t> numbers);

  /// Takes records of cases that ran elsewhere or earlier.
  void take(std::span<const Record> records, std::span<const std::int64_t> numbers);

  /// Runs further rounds of cases for pairs that no judged case showed although it could, if the plan must cover its
  /// pairs. These cases get the numbers from `next` on.
  void cover_pairs(const Plan& plan, const GatePlanOptions& options, std::int64_t next);

  /// Returns true if the run ended, or should end, before all its cases are done.
  [[nodiscard]] bool stopped() const;
  /// Returns the records in the order of the plan, whatever the order in which the cases ended.
  [[nodiscard]] std::vector<Record> records() const;
  [[nodiscard]] std::vector<std::int64_t> numbers() const;
  /// Returns, by kernel, the number of cases that were not started.
  [[nodiscard]] const std::map<std::string, std::int64_t>& not_started() const { return not_started_; }
  [[nodiscard]] std::int64_t left() const { return left_; }
  /// Returns a sentence for each kernel whose compiling was cut short (CampaignOptions::compiling).
  [[nodiscard]] std::vector<std::string> not_compiled() const;
  /// Returns how many cases ran on every device.
  [[nodiscard]] std::int64_t compared() const { return compared_; }
  [[nodiscard]] std::int64_t ran() const { return static_cast<std::int64_t>(done_.size()); }
  void clear_progress() { progress_.clear(); }

 private:
  const KernelTable& table_;
  GateRunOptions options_;
  RunLines& lines_;
  std::map<std::int64_t, Record> done_;
  std::map<std::string, std::int64_t> not_started_;
  std::map<std::string, std::int64_t> not_compiled_;  ///< number of cases by kernel
  std::int64_t left_ = 0;
  std::int64_t compared_ = 0;
  bool failed_ = false;
  Progress progress_{0};
};

}  // namespace samestate::cli
