#pragma once

#include <cstdint>
#include <string>
#include <vector>

/// The results of the gate on known faults, as plain data for reports.
namespace samestate {

/// A pass criterion as the tests of a public project use it.
struct RuleRow {
  std::string name;
  std::string summary;  ///< the formula
  std::string source;   ///< its project, file and commit
};

/// The results of that criterion on a mutant.
struct RuleVerdict {
  std::string rule;  ///< RuleRow::name
  bool killed = false;
  std::int64_t tests = 0;         ///< tests that the correct kernel passes
  std::int64_t rejected = 0;      ///< those that the mutant fails
  std::int64_t false_alarms = 0;  ///< tests that the correct kernel fails
};

/// The result of the gate on a correct kernel with one bug put in.
struct MutantRow {
  std::string bug;  ///< M01 .. M90, or for example H1.7
  std::string name;
  std::string system;
  std::string form;
  std::string summary;     ///< what is wrong
  std::string equivalent;  ///< why no gate can distinguish it from the correct kernel; empty if one can
  bool killed = false;
  std::string gate;  ///< the gate that killed it
  std::string line;  ///< the case that killed it
  std::string reason;
  std::int64_t cases = 0;    ///< cases that ran, including the last one
  std::int64_t planned = 0;  ///< the largest number of cases
  double ratio = 0.0;        ///< of the killing case; for a survivor, the worst
  double seconds = 0.0;
  std::vector<RuleVerdict>
      rules;  ///< in the order of MutantTable::rules; empty if the mutant was not shown to them
};

/// A bug of the catalogue without a mutant, and the reason.
struct NotModelledRow {
  std::string bug;
  std::string reason;
};

struct MutantTable {
  std::vector<MutantRow> rows;
  std::vector<RuleRow> rules;  ///< criteria of public projects; empty if not requested
  std::vector<NotModelledRow> not_modelled;
};

}  // namespace samestate
