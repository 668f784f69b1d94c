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

/// How the cases of a gate are run.
struct GateRunOptions {
  CampaignOptions campaign;
  std::string timeout;  ///< as typed, for the command of a case that took longer
  bool fail_fast = false;
};

/// Runs cases of a plan in worker processes (run_campaign) and keeps what becomes of them, by their places in the plan.
/// It ends early at an interrupt, behind the first failure where that is asked for, and when its run file cannot be
/// written.
class GateRun {
 public:
  GateRun(const KernelTable& table, GateRunOptions options, RunLines& lines)
      : table_(table), options_(std::move(options)), lines_(lines) {}

  /// `numbers`: places in the plan.
  void run(std::span<const Case> cases, std::span<const std::int64_t> numbers);

  /// Those of them that `take` was not given.
  void run_rest(std::span<const Case> cases, std::span<const std::int64_t> numbers);

  /// Records of cases that ran elsewhere, or earlier.
  void take(std::span<const Record> records, std::span<const std::int64_t> numbers);

  /// Cases for pairs that no judged case showed though it could: rounds of more, of a plan that owes them. Those get the
  /// numbers from `next` on.
  void cover_pairs(const Plan& plan, const GatePlanOptions& options, std::int64_t next);

  /// Whether it ended, or should, before its cases do.
  [[nodiscard]] bool stopped() const;
  /// Records in the order of the plan, whatever the order in which they ended, and their places.
  [[nodiscard]] std::vector<Record> records() const;
  [[nodiscard]] std::vector<std::int64_t> numbers() const;
  /// By kernel, cases that were left.
  [[nodiscard]] const std::map<std::string, std::int64_t>& not_started() const { return not_started_; }
  [[nodiscard]] std::int64_t left() const { return left_; }
  /// A sentence for each kernel whose compiling was cut short (CampaignOptions::compiling).
  [[nodiscard]] std::vector<std::string> not_compiled() const;
  /// Cases that every device ran.
  [[nodiscard]] std::int64_t compared() const { return compared_; }
  [[nodiscard]] std::int64_t ran() const { return static_cast<std::int64_t>(done_.size()); }
  void clear_progress() { progress_.clear(); }

 private:
  const KernelTable& table_;
  GateRunOptions options_;
  RunLines& lines_;
  std::map<std::int64_t, Record> done_;
  std::map<std::string, std::int64_t> not_started_;
  std::map<std::string, std::int64_t> not_compiled_;  ///< cases by kernel
  std::int64_t left_ = 0;
  std::int64_t compared_ = 0;
  bool failed_ = false;
  Progress progress_{0};
};

}  // namespace samestate::cli
