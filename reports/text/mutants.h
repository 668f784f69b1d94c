#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "harness/records/mutant_row.h"

/// The output of `samestate mutants`: the gate's results on known faults.
namespace samestate {

/// Killed and total of a group, without equivalent mutants.
struct MutantScore {
  std::int64_t killed = 0, all = 0;
  void add(bool dead) {
    killed += dead ? 1 : 0;
    ++all;
  }
  /// 0 for an empty group.
  [[nodiscard]] double percent() const {
    return all == 0 ? 0.0 : 100.0 * static_cast<double>(killed) / static_cast<double>(all);
  }
};

struct MutantSummary {
  MutantScore score;
  std::map<std::string, MutantScore> by_bug, by_system, by_gate, by_rule;
  std::vector<std::int64_t> cases;  ///< cases needed to kill each, the fewest first
  double slowest = 0.0;             ///< seconds needed to kill one, at most
  std::int64_t equivalent = 0;
  std::vector<std::size_t> survivors;       ///< indices of rows
  std::vector<std::size_t> wrongly_killed;  ///< equivalent mutants that were killed: false alarms
};
[[nodiscard]] MutantSummary summarise(const MutantTable& table);

/// For a terminal: one line per mutant, the score by bug, system, gate and rule, survivors, false alarms.
[[nodiscard]] std::string mutants_text(const MutantTable& table, const MutantSummary& summary);
/// A table in Markdown, and one of the rules' scores if there are any.
[[nodiscard]] std::string mutants_markdown(const MutantTable& table, const MutantSummary& summary);

}  // namespace samestate
