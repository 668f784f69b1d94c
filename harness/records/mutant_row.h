#pragma once

#include <cstdint>
#include <string>
#include <vector>

/// The gate's own score, as plain data: reports read it.
namespace samestate {

/// What the tests of a public project are.
struct RuleRow {
  std::string name;
  std::string summary;  ///< the formula
  std::string source;   ///< project, file, commit
};

/// What they make of a mutant.
struct RuleVerdict {
  std::string rule;  ///< RuleRow::name
  bool killed = false;
  std::int64_t tests = 0;         ///< that the correct kernel passes
  std::int64_t rejected = 0;      ///< of those, by the mutant
  std::int64_t false_alarms = 0;  ///< tests that the correct kernel fails
};

/// What the gate made of a correct kernel with one bug put back.
struct MutantRow {
  std::string bug;  ///< M01 .. M90, or H1.7
  std::string name;
  std::string system;
  std::string form;
  std::string summary;     ///< what is wrong
  std::string equivalent;  ///< why no gate can tell it from the correct kernel; empty: it can
  bool killed = false;
  std::string gate;  ///< that killed it
  std::string line;  ///< the case that did
  std::string reason;
  std::int64_t cases = 0;    ///< run, the last one included
  std::int64_t planned = 0;  ///< at most
  double ratio = 0.0;        ///< of the killing case; of a survivor: the worst
  double seconds = 0.0;
  std::vector<RuleVerdict>
      rules;  ///< in the order of MutantTable::rules; none where it was not shown to them
};

/// A bug of the catalogue without a mutant, and why.
struct NotModelledRow {
  std::string bug;
  std::string reason;
};

struct MutantTable {
  std::vector<MutantRow> rows;
  std::vector<RuleRow> rules;  ///< of public projects; empty: not asked
  std::vector<NotModelledRow> not_modelled;
};

}  // namespace samestate
