#include "reports/text/board_text.h"

#include <fmt/format.h>

#include <cmath>

#include "reports/text/escape.h"

namespace samestate {
namespace {

/// Returns a code span for a table cell, where a bar must be escaped even inside the span.
std::string code(const std::string& text) {
  std::string out;
  for (const char c : on_one_line(text)) {
    if (c == '|') out += '\\';
    out += c == '`' ? '\'' : c;
  }
  return out.empty() ? out : "`" + out + "`";
}

std::string figure(double x) { return std::isnan(x) ? "" : fmt::format("{:.3g}", x); }

}  // namespace

std::string board_markdown(const Board& board, const std::vector<BoardChange>& changes, bool compared) {
  std::string out;
  if (compared) {
    out += fmt::format("## What changed\n\n{}", changes.empty() ? "Nothing.\n" : "");
    for (const BoardChange& c : changes)
      out += fmt::format("* {}{}, {}, {}: {}\n", c.worse ? "**worse**: " : "", code(c.kernel),
                         markdown_cell(c.device), code(c.contract), markdown_cell(c.text));
    out += "\n## Kernels\n\n";
  }
  out +=
      "| kernel | versions | device | contract | card | cases | pass | fail | vacuous | unsupported | median "
      "ratio | worst | "
      "beyond the twin | date | line of the worst "
      "|\n|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|\n";
  bool defects = false;
  for (const BoardRow& row : board.rows) {
    out += fmt::format("| {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |\n",
                       code(row.kernel), markdown_cell(row.versions), markdown_cell(row.device),
                       code(row.contract), row.nearest() ? "nearest" : "exact", row.cases, row.passed,
                       row.failed > 0 ? fmt::format("**{}**", row.failed) : "0", row.vacuous, row.unsupported,
                       figure(row.median), figure(row.worst), row.beyond, row.date, code(row.worst_line));
    defects = defects || !row.defects.empty();
  }
  if (defects) out += fmt::format("\n{} Known defects\n\n", compared ? "##" : "###");
  for (const BoardRow& row : board.rows) {
    for (const BoardDefect& d : row.defects)
      out +=
          fmt::format("* {}{}, {}, {}, {}: {} case{}, first {}: {}\n", code(row.kernel),
                      row.newest ? "" : markdown_cell(fmt::format(", an older version ({})", row.versions)),
                      markdown_cell(row.device), code(row.contract), markdown_cell(d.what), d.lines.size(),
                      d.lines.size() == 1 ? "" : "s", code(d.lines.empty() ? "" : d.lines.front()),
                      markdown_cell(d.reason));
  }
  if (!board.notes.empty())
    out += fmt::format(
        "\nThe runs of {} file(s) were cut off, or cover little: `--json` and `--html` name them.\n",
        board.incomplete);
  return out;
}

}  // namespace samestate
