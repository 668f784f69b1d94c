#pragma once

#include <string>

#include "reports/text/mutants_json.h"

namespace samestate::cli {

/// Where a table of mutants goes, and the least score in percent that is a pass.
struct MutantReports {
  std::string markdown;  ///< empty: none
  bool json = false;
  double floor = 100.0;
};

/// The table without its rows: public rules where they were asked for, and what has no mutant.
[[nodiscard]] MutantTable bare_mutant_table(bool rules);

/// Writes and prints the table, whether one process tried its mutants or several did, and returns the exit code.
[[nodiscard]] int report_mutants(MutantTable table, const MutantPart& part, const MutantReports& reports);

}  // namespace samestate::cli
