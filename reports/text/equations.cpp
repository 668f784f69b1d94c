#include "reports/text/equations.h"

#include <fmt/format.h>

#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>

#include "reports/text/aligned.h"
#include "reports/text/escape.h"

namespace samestate {
namespace {

/// Outcomes in the order of their importance to a reader; any others follow.
constexpr std::array kOutcomes = {"holds", "erratum demonstrated", "resolved", "untestable", "failed"};

constexpr std::size_t kColumns = 110;

std::string summary_of(std::span<const EquationRow> rows) {
  std::map<std::string, int> count;
  for (const EquationRow& row : rows) ++count[row.outcome];
  std::string text = fmt::format("{} {}", rows.size(), rows.size() == 1 ? "row" : "rows");
  for (const char* outcome : kOutcomes) {
    if (count[outcome] > 0) text += fmt::format(", {} {}", count[outcome], outcome);
    count.erase(outcome);
  }
  for (const auto& [outcome, rows_of] : count) text += fmt::format(", {} {}", rows_of, outcome);
  return text;
}

}  // namespace

std::string equations_text(std::span<const EquationRow> rows) {
  std::string text;
  std::string document;
  for (const EquationRow& row : rows) {
    if (row.document != document) {
      text += fmt::format("{}{}: {}\n", document.empty() ? "" : "\n", row.document, row.title);
      document = row.document;
    }
    text += fmt::format("{:<9} {:<13} {:<20} {}  ({}, {})\n", row.id, row.verdict, row.outcome, row.statement,
                        row.lines, row.system);
    text += wrapped(row.computed, "          ", kColumns) + "\n";
  }
  return text + "\n" + summary_of(rows) + "\n";
}

std::string equations_json(std::span<const EquationRow> rows) {
  nlohmann::ordered_json out = nlohmann::ordered_json::array();
  for (const EquationRow& row : rows) {
    out.push_back({{"id", row.id},
                   {"document", row.document},
                   {"lines", row.lines},
                   {"system", row.system},
                   {"statement", row.statement},
                   {"verdict", row.verdict},
                   {"outcome", row.outcome},
                   {"computed", row.computed},
                   {"checks", row.checks},
                   {"residual", row.residual}});
  }
  return out.dump(2) + "\n";
}

std::string equations_markdown(std::span<const EquationRow> rows) {
  std::string text = fmt::format(
      "# The equations of the documents, executed\n\n"
      "Written by `samestate equations --markdown`; the command's test fails where it differs. Each row is "
      "a\n"
      "statement of a document, the ledger's verdict on it, and what was computed from the references and "
      "the\n"
      "cost model when this page was made.\n\n"
      "| outcome | of rows with the verdict | means |\n|---|---|---|\n"
      "| holds | OK, OK\\* | computed, and true (OK\\*: under a premise that is named) |\n"
      "| erratum demonstrated | ERRATUM | the printed and the correct form were computed, and differ |\n"
      "| resolved | INCOMPLETE, AMBIGUOUS, INCONSISTENT | the resolution was computed |\n"
      "| untestable | UNTESTABLE | measurement, analogy or opinion; what arithmetic there is was computed "
      "|\n\n"
      "{}.\n",
      summary_of(rows));
  std::string document;
  for (const EquationRow& row : rows) {
    if (row.document != document) {
      document = row.document;
      text += fmt::format(
          "\n## {}: {}\n\n| id | lines | system | statement | verdict | outcome | computed "
          "|\n|---|---|---|---|---|---|---|\n",
          document, row.title);
    }
    text += fmt::format("| {} | {} | {} | {} | {} | {} | {} |\n", row.id, row.lines, row.system,
                        markdown_cell(row.statement), markdown_cell(row.verdict), row.outcome,
                        markdown_cell(row.computed));
  }
  return text;
}

}  // namespace samestate
