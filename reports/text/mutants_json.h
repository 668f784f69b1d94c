#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "reports/text/mutants.h"

/// The table of mutants as JSON, which `samestate mutants --json` prints, `samestate report --mutants` shows
/// and `samestate merge` joins.
namespace samestate {

/// Which part of a list of mutants a table is.
struct MutantPart {
  std::string version;                         ///< version of samestate; empty in older tables
  std::int64_t shard = 0, shards = 1;          ///< this shard out of `shards`
  std::int64_t total = 0;                      ///< mutants of all shards
  std::string plan;                            ///< PlanHash of their names
  std::map<std::string, std::string> options;  ///< options that determine what is tried
  std::vector<std::int64_t> places;            ///< positions of the rows among those of all shards
};

/// {"killed": n, "all": n, "mutants": [{..} ..], "part": {..}, ..}
[[nodiscard]] std::string mutants_json(const MutantTable& table, const MutantSummary& summary,
                                       const MutantPart& part);

/// One row on one line, in the table's JSON format, and the inverse. Throws Error that names the field.
[[nodiscard]] std::string mutant_line(const MutantRow& row);
[[nodiscard]] MutantRow parse_mutant_line(const std::string& line);

/// A table printed by mutants_json, and its name in error messages.
struct NamedMutants {
  std::string name;
  MutantTable table;
  MutantPart part;
};

/// Throws Error that names file and field if the text is not the output of mutants_json.
[[nodiscard]] NamedMutants parse_mutants(const std::string& name, const std::string& text);

/// The table of all shards, in the order of the list. `version` is that of this build. Throws Error that
/// names file, shard, value and remedy if a shard is missing or present twice, mutants are missing, or tables
/// have different versions, lists or options.
[[nodiscard]] NamedMutants merge_mutant_tables(const std::vector<NamedMutants>& files,
                                               const std::string& version);

}  // namespace samestate
