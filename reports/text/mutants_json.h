#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "reports/text/mutants.h"

/// The table of mutants as JSON: what `samestate mutants --json` prints, `samestate report --mutants` shows and
/// `samestate merge` joins.
namespace samestate {

/// Which part of which list of mutants a table is.
struct MutantPart {
  std::string version;                         ///< of samestate; empty: a table of before
  std::int64_t shard = 0, shards = 1;          ///< this one of so many
  std::int64_t total = 0;                      ///< mutants of all shards
  std::string plan;                            ///< PlanHash of their names
  std::map<std::string, std::string> options;  ///< that decide what is tried
  std::vector<std::int64_t> places;            ///< of the rows, among those of all shards
};

/// {"killed": n, "all": n, "mutants": [{..} ..], "part": {..}, ..}
[[nodiscard]] std::string mutants_json(const MutantTable& table, const MutantSummary& summary,
                                       const MutantPart& part);

/// One row on one line, as the table's JSON has it, and back. Throws Error that names the field.
[[nodiscard]] std::string mutant_line(const MutantRow& row);
[[nodiscard]] MutantRow parse_mutant_line(const std::string& line);

/// A table that mutants_json printed, and the name that errors give it.
struct NamedMutants {
  std::string name;
  MutantTable table;
  MutantPart part;
};

/// Throws Error that names file and field for what mutants_json did not print.
[[nodiscard]] NamedMutants parse_mutants(const std::string& name, const std::string& text);

/// The table of all shards, in the order of the list. `version`: of this build. Throws Error that names file, shard, value
/// and remedy where a shard is missing or there twice, mutants are missing, and tables are of other versions, lists or
/// options.
[[nodiscard]] NamedMutants merge_mutant_tables(const std::vector<NamedMutants>& files,
                                               const std::string& version);

}  // namespace samestate
