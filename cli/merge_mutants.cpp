#include <algorithm>
#include <optional>
#include <string_view>

#include "cli/merge.h"
#include "cli/mutants_result.h"
#include "fuzz/mutants/public_rules.h"
#include "reference/error.h"
#include "reports/records/files.h"
#include "samestate_version.h"

namespace samestate::cli {

int merge_mutants(const std::vector<std::string>& files, const MergeOptions& options) {
  for (const std::string& path : {options.jsonl, options.junit, options.coverage, options.new_baseline}) {
    if (!path.empty()) throw Error(path + ": mutants only have a table, which --markdown and --json write");
  }
  std::vector<NamedMutants> tables;
  for (const std::string& file : files) {
    const std::optional<std::string> text = text_of(file);
    if (!text) throw Error(file + ": cannot be read; name a file that `samestate mutants --json` printed");
    tables.push_back(parse_mutants(file, *text));
  }
  NamedMutants merged = merge_mutant_tables(tables, SAMESTATE_VERSION);
  const auto has_rules = [](const MutantRow& row) { return !row.rules.empty(); };
  MutantTable table =
      bare_mutant_table(std::any_of(merged.table.rows.begin(), merged.table.rows.end(), has_rules));
  table.rows = std::move(merged.table.rows);
  return report_mutants(table, merged.part, {options.markdown, options.json, options.floor});
}

}  // namespace samestate::cli
