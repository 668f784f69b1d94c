#include "cli/mutants_result.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <string_view>
#include <utility>

#include "cli/commands.h"
#include "fuzz/mutants/mutant.h"
#include "fuzz/mutants/public_rules.h"
#include "reports/records/files.h"

namespace samestate::cli {

MutantTable bare_mutant_table(bool rules) {
  MutantTable table;
  if (rules) {
    for (const PublicRule& rule : public_rules())
      table.rules.push_back({std::string(rule.name), std::string(rule.summary), std::string(rule.source)});
  }
  for (const NotModelled& n : not_modelled())
    table.not_modelled.push_back({std::string(n.bug), std::string(n.reason)});
  return table;
}

int report_mutants(MutantTable table, const MutantPart& part, const MutantReports& reports) {
  // Rows from shards and ranks come as JSON, which sorts rules by name; a row has them in the order of the
  // table.
  const auto place = [](std::string_view rule) {
    return std::ranges::find(public_rules(), rule, &PublicRule::name) - public_rules().begin();
  };
  for (MutantRow& row : table.rows)
    std::ranges::sort(row.rules, {}, [&](const RuleVerdict& verdict) { return place(verdict.rule); });
  const MutantSummary summary = summarise(table);
  if (!reports.markdown.empty()) write_atomically(reports.markdown, mutants_markdown(table, summary));
  if (reports.json) {
    fmt::print("{}", mutants_json(table, summary, part));
  } else {
    fmt::print("{}{} of {} mutants killed, {:.1f} %; {} equivalent; floor {:.1f} %\n",
               mutants_text(table, summary), summary.score.killed, summary.score.all, summary.score.percent(),
               summary.equivalent, reports.floor);
  }
  if (summary.score.all == 0 && summary.wrongly_killed.empty()) {
    fmt::print(stderr, "samestate: only equivalent mutants were chosen, so there is nothing to score\n");
    return kVacuous;
  }
  // The slack allows for a floor that was printed with one decimal.
  return summary.score.percent() >= reports.floor - 1e-9 && summary.wrongly_killed.empty() ? kPass : kFail;
}

}  // namespace samestate::cli
