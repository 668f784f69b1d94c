#include "reports/text/mutants.h"

#include <fmt/format.h>

#include <algorithm>

#include "reports/records/summary.h"
#include "reports/text/escape.h"

namespace samestate {
namespace {

std::string row_text(const MutantRow& row) {
  const std::string verdict =
      row.killed ? fmt::format("killed by {} after {}, ratio {:.3g}", row.gate, counted(row.cases, "case"),
                               row.ratio)
                 : fmt::format("SURVIVES {}, worst ratio {:.3g}{}", counted(row.cases, "case"), row.ratio,
                               row.equivalent.empty() ? "" : " (equivalent)");
  std::string text = fmt::format("{:<4} {:<58} {}\n", row.bug, row.name, verdict);
  if (row.rules.empty()) return text;
  text += "    ";
  for (std::size_t i = 0; i < row.rules.size(); ++i)
    text += fmt::format("{}{}: {}", i == 0 ? " " : ", ", row.rules[i].rule,
                        row.rules[i].killed ? "killed" : "passes");
  return text + "\n";
}

std::string scores_text(const char* what, const std::map<std::string, MutantScore>& scores) {
  std::string text = what;
  for (const auto& [key, score] : scores) text += fmt::format("  {} {}/{}", key, score.killed, score.all);
  return text + "\n";
}

}  // namespace

MutantSummary summarise(const MutantTable& table) {
  MutantSummary out;
  for (std::size_t i = 0; i < table.rows.size(); ++i) {
    const MutantRow& row = table.rows[i];
    if (!row.equivalent.empty()) {
      ++out.equivalent;
      if (row.killed) out.wrongly_killed.push_back(i);
      continue;
    }
    out.score.add(row.killed);
    out.by_bug[row.bug].add(row.killed);
    out.by_system[row.system].add(row.killed);
    for (const RuleVerdict& v : row.rules) out.by_rule[v.rule].add(v.killed);
    if (!row.killed) {
      out.survivors.push_back(i);
      continue;
    }
    out.by_gate[row.gate].add(true);
    out.cases.push_back(row.cases);
    out.slowest = std::max(out.slowest, row.seconds);
  }
  std::sort(out.cases.begin(), out.cases.end());
  return out;
}

std::string mutants_text(const MutantTable& table, const MutantSummary& summary) {
  std::string text;
  for (const MutantRow& row : table.rows) text += row_text(row);
  text += scores_text("by bug   ", summary.by_bug);
  text += scores_text("by system", summary.by_system);
  text += scores_text("by gate  ", summary.by_gate);
  if (!summary.by_rule.empty()) text += scores_text("by public rule", summary.by_rule);
  for (const std::size_t i : summary.survivors)
    text += fmt::format("survivor: {}: {}\n", table.rows[i].name, table.rows[i].summary);
  for (const std::size_t i : summary.wrongly_killed) {
    text += fmt::format("false alarm: {} is equivalent ({}) and was killed: samestate repro '{}'\n",
                        table.rows[i].name, table.rows[i].equivalent, table.rows[i].line);
  }
  if (!summary.cases.empty()) {
    text += fmt::format("cases to kill: median {}, most {}; slowest {:.1f} s\n",
                        summary.cases[summary.cases.size() / 2], summary.cases.back(), summary.slowest);
  }
  return text;
}

std::string mutants_markdown(const MutantTable& table, const MutantSummary& summary) {
  std::string text = fmt::format("## Mutants\n\n{} of {} killed ({:.1f} %).\n\n", summary.score.killed,
                                 summary.score.all, summary.score.percent());
  text +=
      "M01..M90 shipped in a public project; F is a fault in a system's equations that nobody is known to "
      "have "
      "shipped; H1.7 is a subject that cheats the gate or breaks its process.\n\n";
  if (!table.rules.empty()) {
    text += "| judged by | killed | share |\n|---|---|---|\n";
    text += fmt::format("| samestate gate | {} of {} | {:.1f} % |\n", summary.score.killed, summary.score.all,
                        summary.score.percent());
    for (const RuleRow& rule : table.rules) {
      const auto found = summary.by_rule.find(rule.name);
      const MutantScore score = found == summary.by_rule.end() ? MutantScore{} : found->second;
      text += fmt::format("| {}: {} ({}) | {} of {} | {:.1f} % |\n", rule.name, markdown_cell(rule.summary),
                          rule.source, score.killed, score.all, score.percent());
    }
    text += "\n";
  }
  text += "| bug | mutant | what is wrong | gate | cases | ratio |";
  for (const RuleRow& rule : table.rules) text += fmt::format(" {} |", rule.name);
  text += "\n|---|---|---|---|---|---|";
  for (std::size_t i = 0; i < table.rules.size(); ++i) text += "---|";
  text += "\n";
  for (const MutantRow& row : table.rows) {
    text += fmt::format("| {} | {} | {} | {} | {} | {:.3g} |", row.bug, row.name, markdown_cell(row.summary),
                        row.killed ? row.gate : "survives", row.cases, row.ratio);
    for (const RuleVerdict& v : row.rules) text += v.killed ? " killed |" : " passes |";
    for (std::size_t i = row.rules.size(); i < table.rules.size(); ++i) text += " |";
    text += "\n";
  }
  return text;
}

}  // namespace samestate
