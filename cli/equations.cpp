#include "oracles/proofs/equations/equation.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>

#include "cli/commands.h"
#include "cli/interrupt.h"
#include "reports/text/equations.h"

namespace samestate::cli {
namespace {

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

EquationRow evaluated(const Equation& row) {
  const Finding finding = evaluate(row);
  return {std::string(row.id),
          std::string(row.document),
          std::string(title_of(row.document)),
          std::string(row.lines),
          std::string(row.system),
          std::string(row.statement),
          std::string(name_of(row.verdict)),
          std::string(name_of(finding.outcome)),
          finding.computed,
          finding.checks,
          finding.residual};
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
      "Evaluates the ledger: 245 statements of five documents, each computed from the references "
      "and the cost model. A true\n"
      "statement holds; for an erratum the printed and the correct form are both evaluated; for an "
      "incomplete, ambiguous or\n"
      "inconsistent statement its resolution is computed.\n"
      "\n"
      "  samestate equations                                every row\n"
      "  samestate equations --id GDN-17                    one statement and its counterexample\n"
      "  samestate equations --document 003 --verdict erratum\n"
      "  samestate equations --system costs --json          arithmetic claims as JSON\n"
      "  samestate equations --markdown > docs/equations.md\n"
      "\n"
      "Filters can be combined. Exit 1 if a row's computation contradicts the ledger, 2 for a "
      "filter that matches nothing (the\n"
      "known values are listed).");
  app.add_option("--document", options->filter.document, "000, 001, 002, 003 or 004");
  app.add_option("--system", options->filter.system,
                 "the code that computes the row: gated_delta_rule, costs, norms ..");
  app.add_option("--verdict", options->filter.verdict,
                 "OK, OK*, INCOMPLETE, AMBIGUOUS, INCONSISTENT, ERRATUM or UNTESTABLE, in any case");
  app.add_option("--id", options->filter.id, "one row: GDN-17, COST-31a ..");
  CLI::Option* json = app.add_flag("--json", options->json, "print JSON, with checks and residuals");
  app.add_flag("--markdown", options->markdown, "print the page docs/equations.md")->excludes(json);
  return [options] {
    std::vector<EquationRow> rows;
    const auto selected = select(options->filter);
    note_interrupts();
    for (const Equation* row : selected) {
      if (interrupted()) break;
      rows.push_back(evaluated(*row));
    }
    fmt::print("{}", options->json       ? equations_json(rows)
                     : options->markdown ? equations_markdown(rows)
                                         : equations_text(rows));
    const bool failed = std::any_of(rows.begin(), rows.end(), [](const EquationRow& row) {
      return row.outcome == name_of(Finding::Outcome::failed);
    });
    const bool all = rows.size() == selected.size();
    if (!all)
      fmt::print(stderr, "samestate: interrupted after {} of {} statements\n", rows.size(), selected.size());
    return static_cast<int>(failed ? kFail : all ? kPass : kVacuous);
  };
}

}  // namespace samestate::cli
