#include "oracles/proofs/equations/equation.h"

#include <fmt/format.h>

#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/commands.h"

namespace samestate::cli {
namespace {

struct Evaluated {
  const Equation* row;
  Finding finding;
};

/// Outcomes in the order of their importance to a reader.
constexpr Finding::Outcome kOutcomes[] = {Finding::Outcome::holds, Finding::Outcome::erratum_demonstrated,
                                          Finding::Outcome::resolved, Finding::Outcome::untestable,
                                          Finding::Outcome::failed};

std::string_view title_of(std::string_view document) {
  static const std::map<std::string_view, std::string_view> titles = {
      {"000", "report on Qwen3-Next"},
      {"001", "walk through Qwen3-Next's code and config.json"},
      {"002", "mathematics of Qwen3-Next, linear attention, RetNet, test-time training, DeltaNet"},
      {"003", "DendAttn architecture"},
      {"004", "mixture of experts, latent attention, state space models"}};
  const auto found = titles.find(document);
  return found == titles.end() ? "" : found->second;
}

std::string summary_of(const std::vector<Evaluated>& rows) {
  std::map<Finding::Outcome, int> count;
  for (const Evaluated& row : rows) ++count[row.finding.outcome];
  std::string text = fmt::format("{} {}", rows.size(), rows.size() == 1 ? "row" : "rows");
  for (const Finding::Outcome outcome : kOutcomes) {
    if (count[outcome] > 0) text += fmt::format(", {} {}", count[outcome], name_of(outcome));
  }
  return text;
}

/// Lines of at most 110 columns under an indent.
std::string wrapped(std::string_view text, std::string_view indent) {
  std::string out;
  std::size_t column = 0;
  while (!text.empty()) {
    const std::size_t space = text.find(' ');
    const std::string_view word = text.substr(0, space);
    if (column == 0 || column + 1 + word.size() > 110) {
      out += fmt::format("{}{}{}", column == 0 ? "" : "\n", indent, word);
      column = indent.size() + word.size();
    } else {
      out += fmt::format(" {}", word);
      column += 1 + word.size();
    }
    text.remove_prefix(space == text.npos ? text.size() : space + 1);
  }
  return out;
}

void print_text(const std::vector<Evaluated>& rows) {
  std::string_view document;
  for (const Evaluated& at : rows) {
    const Equation& row = *at.row;
    if (row.document != document) {
      fmt::print("{}{}: {}\n", document.empty() ? "" : "\n", row.document, title_of(row.document));
      document = row.document;
    }
    fmt::print("{:<9} {:<13} {:<20} {}  ({}, {})\n", row.id, name_of(row.verdict),
               name_of(at.finding.outcome), row.statement, row.lines, row.system);
    fmt::print("{}\n", wrapped(at.finding.computed, "          "));
  }
  fmt::print("\n{}\n", summary_of(rows));
}

void print_json(const std::vector<Evaluated>& rows) {
  nlohmann::ordered_json out = nlohmann::ordered_json::array();
  for (const Evaluated& at : rows) {
    out.push_back({{"id", at.row->id},
                   {"document", at.row->document},
                   {"lines", at.row->lines},
                   {"system", at.row->system},
                   {"statement", at.row->statement},
                   {"verdict", name_of(at.row->verdict)},
                   {"outcome", name_of(at.finding.outcome)},
                   {"computed", at.finding.computed},
                   {"checks", at.finding.checks},
                   {"residual", at.finding.residual}});
  }
  fmt::print("{}\n", out.dump(2));
}

/// A cell of a Markdown table.
std::string cell(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '|' || c == '*' || c == '<' || c == '`') out += '\\';
    out += c;
  }
  return out;
}

void print_markdown(const std::vector<Evaluated>& rows) {
  fmt::print(
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
  std::string_view document;
  for (const Evaluated& at : rows) {
    const Equation& row = *at.row;
    if (row.document != document) {
      document = row.document;
      fmt::print("\n## {}: {}\n\n", document, title_of(document));
      fmt::print(
          "| id | lines | system | statement | verdict | outcome | computed "
          "|\n|---|---|---|---|---|---|---|\n");
    }
    fmt::print("| {} | {} | {} | {} | {} | {} | {} |\n", row.id, row.lines, row.system, cell(row.statement),
               cell(name_of(row.verdict)), name_of(at.finding.outcome), cell(at.finding.computed));
  }
}

}  // namespace

Command add_equations(CLI::App& app) {
  struct Options {
    EquationFilter filter;
    bool json = false;
    bool markdown = false;
  };
  auto options = std::make_shared<Options>();
  app.footer(
      "Evaluates the ledger: 245 statements of five documents, each computed from the references and the "
      "cost model.\n"
      "A true statement holds; an erratum shows what the printed and the correct form give; what is "
      "incomplete, "
      "ambiguous or\ninconsistent is computed in its resolution.\n\n"
      "  samestate equations                                every row\n"
      "  samestate equations --id GDN-17                    one statement and its counterexample\n"
      "  samestate equations --document 003 --verdict erratum\n"
      "  samestate equations --system costs --json          arithmetic claims, machine-readable\n"
      "  samestate equations --markdown > docs/equations.md\n\n"
      "Filters combine. Exit 1 when a row's computation contradicts the ledger, 2 for a filter that names "
      "nothing "
      "(the known\nvalues are listed).");
  app.add_option("--document", options->filter.document, "000, 001, 002, 003 or 004");
  app.add_option("--system", options->filter.system,
                 "what computes the row: gated_delta_rule, costs, norms ..");
  app.add_option("--verdict", options->filter.verdict,
                 "OK, OK*, INCOMPLETE, AMBIGUOUS, INCONSISTENT, ERRATUM or UNTESTABLE, in any case");
  app.add_option("--id", options->filter.id, "one row: GDN-17, COST-31a ..");
  CLI::Option* json = app.add_flag("--json", options->json, "machine-readable, with checks and residuals");
  app.add_flag("--markdown", options->markdown, "the page docs/equations.md")->excludes(json);
  return [options] {
    std::vector<Evaluated> rows;
    for (const Equation* row : select(options->filter)) rows.push_back({row, evaluate(*row)});
    if (options->json) {
      print_json(rows);
    } else if (options->markdown) {
      print_markdown(rows);
    } else {
      print_text(rows);
    }
    for (const Evaluated& at : rows) {
      if (at.finding.outcome == Finding::Outcome::failed) return static_cast<int>(kFail);
    }
    return static_cast<int>(kPass);
  };
}

}  // namespace samestate::cli
