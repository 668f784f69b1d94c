#pragma once

#include <string>

#include "reports/text/mutants_json.h"

namespace samestate::cli {

/// The files to which a table of mutants is written, and the lowest score in percent that is a pass.
struct MutantReports {
  std::string markdown;  ///< empty if none is written
  bool json = false;
  double floor = 100.0;
};

/// Returns the table without its rows of mutants: with public rules if they were requested, and with the bugs that have
/// no mutant.
[[nodiscard]] MutantTable bare_mutant_table(bool rules);

/// Writes and prints the table, whether one process tried its mutants or several did, and returns the exit code.
[[nodiscard]] int report_mutants(MutantTable table, const MutantPart& part, const MutantReports& reports);

}  // namespace samestate::cli
